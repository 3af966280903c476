package ports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

var nodePorts = ports.Span{First: 30000, Last: 32767}

func TestRangeCheck(t *testing.T) {
	good := map[string]ports.Range{
		"the default":                       {Base: wellknown.DefaultBasePort, Count: wellknown.DefaultPortCount},
		"one port":                          {Base: 65535, Count: 1},
		"one that meets the NodePort range": {Base: 29000, Count: 2000, NodePorts: nodePorts},
	}
	bad := map[string]struct {
		r    ports.Range
		want string
	}{
		"privileged ports":   {ports.Range{Base: 1023, Count: 5}, "5 ports from 1023 on: want 1 or more, all of them from 1024 to 65535"},
		"no ports":           {ports.Range{Base: 20490}, "0 ports from 20490 on: want 1 or more, all of them from 1024 to 65535"},
		"ports past the end": {ports.Range{Base: 65535, Count: 2}, "2 ports from 65535 on: want 1 or more, all of them from 1024 to 65535"},
		"only NodePorts": {ports.Range{Base: 30000, Count: 10, NodePorts: nodePorts}, "ports 30000 to 30009: want some that are neither 2049 (NFS), " +
			"20488 (the node agent), 30000-32767 (NodePort services) nor reserved"},
	}
	for name, r := range good {
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tt := range bad {
		if err := tt.r.Check(); err == nil || err.Error() != tt.want {
			t.Errorf("%s: got  %v\nwant %s", name, err, tt.want)
		}
	}
}

func TestParseSpan(t *testing.T) {
	for _, good := range []string{"30000-32767", "1-65535", "20000-20000"} {
		if span, err := ports.ParseSpan(good); err != nil || span.String() != good {
			t.Errorf("%s: got %s and %v", good, span, err)
		}
	}
	want := "want first-last, both from 1 to 65535, as 30000-32767"
	for _, bad := range []string{"", "-", "30000", "30000-", "-32767", "0-5", "5-4", "1-65536", "a-b", "1-2-3", "30000+2767", "1 - 2"} {
		if _, err := ports.ParseSpan(bad); err == nil || err.Error() != want {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

func TestGivenPortsAmongNodePorts(t *testing.T) {
	among := ports.Range{Base: 20490, Count: 4, NodePorts: ports.Span{First: 20491, Last: 20492}}
	runAssignments(t, map[string]assignmentTest{
		"stay, and are warned about": {
			in:   ports.Input{Table: given(kept{"fs-1": 20490, "fs-2": 20491}), Listing: listing("fs-1", "fs-2", "fs-3"), Range: among},
			want: outcome{Ports: kept{"fs-1": 20490, "fs-2": 20491, "fs-3": 20493}, Events: []string{"Conflict fs-2", "Found fs-3"}},
		},
		"are warned about once for all": {
			in:   ports.Input{Table: given(kept{"fs-1": 20492, "fs-2": 20491}), Listing: listing("fs-1", "fs-2"), Range: among},
			want: outcome{Ports: kept{"fs-1": 20492, "fs-2": 20491}, Events: []string{"Conflict fs-1"}},
		},
		"come back with their volumes": {
			in:   ports.Input{Listing: listing("fs-1"), Volumes: []ports.Volume{volume("v", "fs-1", 20491)}, Range: among},
			want: outcome{Ports: kept{"fs-1": 20491}, Events: []string{"Conflict fs-1", "Found fs-1"}},
		},
		"are the administrator's to choose": {
			in:   ports.Input{Pinned: pins(kept{"nas-1": 20491}), Range: among},
			want: outcome{Ports: kept{"nas-1": 20491}, Events: []string{"Conflict nas-1", "Found nas-1"}},
		},
	})
}

func TestWarningOfPortsAmongNodePorts(t *testing.T) {
	table := given(kept{"fs-1": 20490, "fs-2": 20600})
	for i := range 1000 {
		table.Targets[fmt.Sprintf("fs-9%03d", i)] = ports.Target{Port: 21000 + i}
	}
	among := ports.Range{Base: 20490, Count: 1000, NodePorts: ports.Span{First: 20500, Last: 22767}}
	out := ports.Assign(ports.Input{Table: table, Range: among, Now: noon})
	var messages []string
	for _, n := range out.Conditions {
		if n.Reason == wellknown.EventPortConflict {
			messages = append(messages, n.Message)
		}
	}
	want := "the NodePort range 20500-22767 has the ports of fs-2 (port 20600), fs-9000 (port 21000), fs-9001 (port 21001), " +
		"fs-9002 (port 21002), fs-9003 (port 21003) and 996 others: a Service with such a nodePort would get their NFS traffic on every node. "
	if len(messages) != 1 || !strings.HasPrefix(messages[0], want) {
		t.Fatalf("warnings mismatch (-want +got):\n%s", cmp.Diff([]string{want}, messages))
	}
	for _, advice := range []string{"Ports that were given stay", "--node-port-range"} {
		if !strings.Contains(messages[0], advice) {
			t.Errorf("the warning lacks %q", advice)
		}
	}
}
