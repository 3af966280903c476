package table

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// registered are metrics of a loop, and where they are found.
func registered(t *testing.T) (*prometheus.Registry, *metrics) {
	t.Helper()
	registry := prometheus.NewRegistry()
	return registry, newMetrics(registry)
}

func TestMetrics(t *testing.T) {
	registry, m := registered(t)
	m.interval = 5 * time.Minute
	m.show(numbers{
		portsInUse: one(2), portsFree: one(8), targetCount: {usable: 1, unusable: 1, missing: 0},
		fileSystemSize: {"fs-1": 4096, "fs-2": 1}, unreadable: {"efs-stunnel": 0},
	})
	m.show(numbers{
		portsInUse: one(1), portsFree: one(9), targetCount: {usable: 1, unusable: 0, missing: 0},
		tableBytes: one(512), identity: one(1),
		fileSystemSize: {"fs-1": 4096}, lastSuccess: one(seconds(time.Unix(1700000000, 5e8))), unreadable: {"efs-stunnel": 0},
	})
	m.show(numbers{unreadable: {"efs-stunnel": 1}, lastSuccess: one(seconds(time.Unix(1700000100, 0)))})
	m.failures.Inc()
	want := `
# HELP efs_stunnel_manager_discovery_failures_total Polls of the EFS API, and single requests to it, that failed.
# TYPE efs_stunnel_manager_discovery_failures_total counter
efs_stunnel_manager_discovery_failures_total 1
# HELP efs_stunnel_manager_discovery_interval_seconds --efs-polling-interval. Leader only, absent with --discovery none.
# TYPE efs_stunnel_manager_discovery_interval_seconds gauge
efs_stunnel_manager_discovery_interval_seconds 300
# HELP efs_stunnel_manager_discovery_last_success_timestamp_seconds When the file systems were last listed, 0 before this leader's first time. Leader only, absent with --discovery none.
# TYPE efs_stunnel_manager_discovery_last_success_timestamp_seconds gauge
efs_stunnel_manager_discovery_last_success_timestamp_seconds 1.7000001e+09
# HELP efs_stunnel_manager_file_system_size_bytes Metered size of the file system, as EFS reports it.
# TYPE efs_stunnel_manager_file_system_size_bytes gauge
efs_stunnel_manager_file_system_size_bytes{file_system="fs-1"} 4096
# HELP efs_stunnel_manager_identity_looks_wrong 1 while the EFS API lists what seems to be another account's or region's file systems, or none while the table has some. Leader only, absent with --discovery none.
# TYPE efs_stunnel_manager_identity_looks_wrong gauge
efs_stunnel_manager_identity_looks_wrong 1
# HELP efs_stunnel_manager_local_ports_free Local ports left for new targets. Leader only.
# TYPE efs_stunnel_manager_local_ports_free gauge
efs_stunnel_manager_local_ports_free 9
# HELP efs_stunnel_manager_local_ports_in_use Local ports of targets. Leader only.
# TYPE efs_stunnel_manager_local_ports_in_use gauge
efs_stunnel_manager_local_ports_in_use 1
# HELP efs_stunnel_manager_port_corrections_total Volumes whose port= was rewritten.
# TYPE efs_stunnel_manager_port_corrections_total counter
efs_stunnel_manager_port_corrections_total 0
# HELP efs_stunnel_manager_root_volume_writes_total Writes that created, repaired or removed root volumes and root claims.
# TYPE efs_stunnel_manager_root_volume_writes_total counter
efs_stunnel_manager_root_volume_writes_total 0
# HELP efs_stunnel_manager_table_bytes Size of the stored table; new file systems get no port beyond 921,600. Leader only.
# TYPE efs_stunnel_manager_table_bytes gauge
efs_stunnel_manager_table_bytes 512
# HELP efs_stunnel_manager_table_unreadable 1 while that ConfigMap cannot be read.
# TYPE efs_stunnel_manager_table_unreadable gauge
efs_stunnel_manager_table_unreadable{config_map="efs-stunnel"} 1
# HELP efs_stunnel_manager_table_write_failures_total Writes of the table that the apiserver refused, conflicts aside.
# TYPE efs_stunnel_manager_table_write_failures_total counter
efs_stunnel_manager_table_write_failures_total 0
# HELP efs_stunnel_manager_targets Targets of the table: usable, unusable or missing. Leader only.
# TYPE efs_stunnel_manager_targets gauge
efs_stunnel_manager_targets{state="missing"} 0
efs_stunnel_manager_targets{state="unusable"} 0
efs_stunnel_manager_targets{state="usable"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestNoNumbersBeforeTheFirstSync(t *testing.T) {
	registry, _ := registered(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasSuffix(f.GetName(), "_total") {
			t.Errorf("%s is shown", f.GetName())
		}
	}
}

// An alert can only fire on a series that is there.
func TestTimeOfTheLastListing(t *testing.T) {
	const name = metricsPrefix + "discovery_last_success_timestamp_seconds"
	const help = "# HELP " + name + " When the file systems were last listed, 0 before this leader's first time. Leader only, absent with --discovery none.\n"
	for _, test := range []struct {
		what     string
		interval time.Duration
		want     string
	}{
		{"an API that has not answered yet", time.Minute, help + "# TYPE " + name + " gauge\n" + name + " 0\n"},
		{"no API", 0, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			registry, m := registered(t)
			m.interval = test.interval
			m.show(numbers{lastSuccess: one(seconds(time.Time{}))})
			if err := testutil.GatherAndCompare(registry, strings.NewReader(test.want), name); err != nil {
				t.Error(err)
			}
		})
	}
}
