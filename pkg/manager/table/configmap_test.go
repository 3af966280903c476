package table

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestReadTable(t *testing.T) {
	good := tableMap(tableOf(map[string]ports.Target{"fs-1": target(20490)}))
	tests := map[string]struct {
		object *corev1.ConfigMap
		lost   bool
		err    string // a part
	}{
		"none is lost":                        {nil, true, ""},
		"an empty one is lost":                {configMap("efs-stunnel", nil), true, ""},
		"a good one":                          {good, false, ""},
		"an empty text is a mistake":          {configMap("efs-stunnel", map[string]string{wellknown.TargetsKey: ""}), false, "the file is empty"},
		"bad YAML is a mistake":               {configMap("efs-stunnel", map[string]string{wellknown.TargetsKey: "a: ["}), false, "efs-stunnel.yaml: "},
		"another key is a slip of the pen":    {configMap("efs-stunnel", map[string]string{"efs-stunnel.yml": "{}"}), false, "not efs-stunnel.yaml"},
		"one port twice is a mistake":         {configMap("efs-stunnel", map[string]string{wellknown.TargetsKey: twice}), false, "20490 is also that of"},
		"a port must be there in the table":   {configMap("efs-stunnel", map[string]string{wellknown.TargetsKey: portless}), false, "stunnel_port: missing"},
		"binary data is no table, either":     {&corev1.ConfigMap{BinaryData: map[string][]byte{"a": {1}}}, false, "other keys"},
		"a key of another client beside ours": {beside(good, "note", "hello"), false, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := read(tt.object, nil, ports.Decode)
			if d.lost() != tt.lost {
				t.Errorf("lost: %v, want %v", d.lost(), tt.lost)
			}
			if got := errorText(d.err); (got == "") != (tt.err == "") || !strings.Contains(got, tt.err) {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if (d.table != nil) != (!tt.lost && tt.err == "") {
				t.Errorf("table %v", d.table)
			}
		})
	}
}

const (
	twice    = "efs_stunnel_targets: {fs-1: {name: a, stunnel_port: 20490}, fs-2: {name: b, stunnel_port: 20490}}"
	portless = "efs_stunnel_targets: {fs-1: {name: a}}"
)

func beside(object *corev1.ConfigMap, key, value string) *corev1.ConfigMap {
	object = object.DeepCopy()
	object.Data[key] = value
	return object
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestReadPinned(t *testing.T) {
	before := tableOf(map[string]ports.Target{"server": target(20495)})
	bad := configMap("efs-stunnel-pinned", map[string]string{wellknown.TargetsKey: "a: ["})
	if d := readPinned(nil, before); d.err != nil || len(d.table.Targets) != 0 {
		t.Errorf("deleted: %+v", d)
	}
	if d := readPinned(bad, before); d.err == nil || d.table != before {
		t.Errorf("broken: %+v", d)
	}
	if d := readPinned(bad, nil); d.err == nil || d.table != nil {
		t.Errorf("broken from the start: %+v", d)
	}
	portFree := configMap("efs-stunnel-pinned", map[string]string{wellknown.TargetsKey: portless})
	if d := readPinned(portFree, nil); d.err != nil || len(d.table.Targets) != 1 {
		t.Errorf("without a port: %+v", d)
	}
}

func TestWithTable(t *testing.T) {
	table := ports.Table{Targets: map[string]ports.Target{"fs-1": target(20490)}}
	object := beside(tableMap(&ports.Table{}), "note", "hello")
	object.Labels, object.ResourceVersion = map[string]string{"team": "a"}, "7"
	next := withTable(object, namespace, table)
	if diff := cmp.Diff(map[string]string{"note": "hello", wellknown.TargetsKey: string(ports.Encode(table))}, next.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	if next.Labels["team"] != "a" || next.ResourceVersion != "7" || len(object.Data) != 2 || object.Data[wellknown.TargetsKey] == next.Data[wellknown.TargetsKey] {
		t.Errorf("next %+v, object %+v", next.ObjectMeta, object)
	}
	want := map[string]string{"app.kubernetes.io/name": "efs-stunnel", "app.kubernetes.io/managed-by": "efs-manager"}
	if diff := cmp.Diff(want, withTable(nil, namespace, table).Labels); diff != "" {
		t.Errorf("labels of a new one (-want +got):\n%s", diff)
	}
}
