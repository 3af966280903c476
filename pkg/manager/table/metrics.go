package table

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const metricsPrefix = "efs_stunnel_manager_"

// States of targets and access points in metrics.
const (
	usable   = "usable"
	unusable = "unusable"
	missing  = "missing"
	waiting  = "waiting"
)

// Names of gauges, as they are after the prefix.
const (
	tableBytes     = "table_bytes"
	identity       = "identity_looks_wrong"
	portsInUse     = "local_ports_in_use"
	portsFree      = "local_ports_free"
	targetCount    = "targets"
	pointCount     = "access_points"
	fileSystemSize = "file_system_size_bytes"
	lastSuccess    = "discovery_last_success_timestamp_seconds"
	pollInterval   = "discovery_interval_seconds"
	unreadable     = "table_unreadable"
)

// numbers are what gauges show, by the gauge's name and the value of its label, "" without one.
type numbers map[string]map[string]float64

// one is the number of a gauge without a label.
func one(value float64) map[string]float64 { return map[string]float64{"": value} }

// metrics has gauges as vectors, also those without a label, so that a standby has no series of them.
type metrics struct {
	interval    time.Duration // between polls of the API, 0 if there is none; set before the first show
	gauges      map[string]*prometheus.GaugeVec
	shown       numbers // by the loop of the table, which alone shows some
	failures    prometheus.Counter
	corrections prometheus.Counter
	rootWrites  prometheus.Counter
	notStored   prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	register := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return register.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + name, Help: help})
	}
	m := &metrics{
		failures:    counter("discovery_failures_total", "Polls of the EFS API, and single requests to it, that failed."),
		corrections: counter("port_corrections_total", "Volumes whose port= was rewritten."),
		rootWrites:  counter("root_volume_writes_total", "Writes that created, repaired or removed root volumes and root claims."),
		notStored:   counter("table_write_failures_total", "Writes of the table that the apiserver refused, conflicts aside."),
		gauges:      map[string]*prometheus.GaugeVec{}, shown: numbers{},
	}
	for _, g := range []struct {
		name, help string
		labels     []string
	}{
		{tableBytes, "Size of the stored table; new file systems get no port beyond 921,600. Leader only.", nil},
		{identity, "1 while the EFS API lists what seems to be another account's or region's file systems, or none while the table has some. Leader only, absent with --discovery none.", nil},
		{portsInUse, "Local ports of targets. Leader only.", nil},
		{portsFree, "Local ports left for new targets. Leader only.", nil},
		{targetCount, "Targets of the table: usable, unusable or missing. Leader only.", []string{"state"}},
		{pointCount, "Access points that SharedVolumes request: usable, waiting or unusable. Leader only.", []string{"state"}},
		{fileSystemSize, "Metered size of the file system, as EFS reports it.", []string{"file_system"}},
		{lastSuccess, "When the file systems were last listed, 0 before this leader's first time. Leader only, absent with --discovery none.", nil},
		{pollInterval, "--efs-polling-interval. Leader only, absent with --discovery none.", nil},
		{unreadable, "1 while that ConfigMap cannot be read.", []string{"config_map"}},
	} {
		m.gauges[g.name] = register.NewGaugeVec(prometheus.GaugeOpts{Name: metricsPrefix + g.name, Help: g.help}, g.labels)
	}
	return m
}

// show publishes numbers, and drops the series that they no longer have. Gauges that are not among them stay as they were.
func (m *metrics) show(n numbers) {
	if m.interval > 0 {
		m.gauges[pollInterval].WithLabelValues().Set(m.interval.Seconds())
	}
	for name, values := range n {
		if m.interval == 0 && (name == lastSuccess || name == identity) {
			continue
		}
		for label, value := range values {
			m.gauges[name].WithLabelValues(labels(label)...).Set(value)
		}
		for label := range m.shown[name] {
			if _, still := values[label]; !still {
				m.gauges[name].DeleteLabelValues(labels(label)...)
			}
		}
		m.shown[name] = values
	}
}

func labels(label string) []string {
	if label == "" {
		return nil
	}
	return []string{label}
}

// seconds are those since 1970, 0 for never.
func seconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.UnixMilli()) / 1000
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
