package routing_test

import (
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestReadTable(t *testing.T) {
	last := ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}, "fs-2": {Port: 20491}}}
	tests := map[string]struct {
		text     string
		ports    map[string]int
		rejected []string
		bad      bool
	}{
		"good": {"efs_stunnel_targets: {fs-1: {stunnel_port: 20499}}", map[string]int{"fs-1": 20499}, nil, false},
		"a bad target is as in the last table": {
			"efs_stunnel_targets: {fs-1: {stunnel_port: x}, fs-2: {stunnel_port: 20495}}",
			map[string]int{"fs-1": 20490, "fs-2": 20495}, []string{"fs-1"}, false,
		},
		"a bad ID": {
			`efs_stunnel_targets: {"a\nb": {stunnel_port: 1}, fs-2: {stunnel_port: 20495}}`,
			map[string]int{"fs-2": 20495}, []string{"a\nb"}, false,
		},
		"only bad targets": {"efs_stunnel_targets: {fs-1: {stunnel_port: x}}", map[string]int{"fs-1": 20490, "fs-2": 20491}, []string{"fs-1"}, true},
		"not YAML":         {"efs_stunnel_targets: [", map[string]int{"fs-1": 20490, "fs-2": 20491}, nil, true},
		"no table":         {"", map[string]int{"fs-1": 20490, "fs-2": 20491}, nil, true},
		"not a map":        {"efs_stunnel_targets: 5", map[string]int{"fs-1": 20490, "fs-2": 20491}, nil, true},
		"empty":            {"efs_stunnel_targets: {}", map[string]int{}, nil, false},
		"two targets with one port": {
			"efs_stunnel_targets: {fs-1: {stunnel_port: 20495}, fs-2: {stunnel_port: 20495}}",
			map[string]int{"fs-1": 20495, "fs-2": 20495}, nil, false, // the plan assigns it to one
		},
		"a bad value of another key": {"retired_ports: x\nefs_stunnel_targets: {fs-1: {stunnel_port: 20499}}", map[string]int{"fs-1": 20499}, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table, rejected, err := routing.ReadTable([]byte(tt.text), last)
			if (err != nil) != tt.bad {
				t.Errorf("got error %v", err)
			}
			if len(table.Targets) != len(tt.ports) {
				t.Errorf("got %v", table.Targets)
			}
			for id, port := range tt.ports {
				if got := table.Targets[id].Port; got != port {
					t.Errorf("%s has port %d, want %d", id, got, port)
				}
			}
			if len(rejected) != len(tt.rejected) || len(rejected) > 0 && rejected[tt.rejected[0]] == nil {
				t.Errorf("got %v, want %v rejected", rejected, tt.rejected)
			}
		})
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add("efs_stunnel_targets: {fs-1: {stunnel_port: 20499}, fs-2: 7}")
	f.Add("efs_stunnel_targets: {? [a] : b}")
	last := ports.Table{Targets: map[string]ports.Target{"fs-1": {Port: 20490}}}
	f.Fuzz(func(t *testing.T, text string) {
		table, _, err := routing.ReadTable([]byte(text), last)
		if err != nil && table.Targets["fs-1"].Port != 20490 {
			t.Errorf("%q: got an error without the last table", text)
		}
		for id := range table.Targets {
			if ports.CheckTargetID(id) != nil {
				t.Errorf("%q: got target %q, which has no valid ID", text, id)
			}
		}
	})
}
