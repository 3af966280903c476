package ports_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// fourPorts are 20490 to 20493.
var fourPorts = ports.Range{Base: 20490, Count: 4}

// usable is a file system as AWS shows it when all is well.
func usable(id string) efs.FileSystem {
	return efs.FileSystem{ID: id, State: efs.Available, MountTargets: []efs.MountTarget{{
		SubnetID: "subnet-a", VPCID: "vpc-1", ZoneName: "us-east-1a",
		Address: netip.MustParseAddr("10.0.0.4"), State: efs.Available,
	}}}
}

// home is the account and region of the cluster's file systems.
const home = "123456789012/us-east-1"

// listing is one of the cluster's own account and region.
func listing(ids ...string) efs.Listing {
	l := efs.Listing{Complete: true, ReadAt: noon, Source: home}
	for _, id := range ids {
		l.FileSystems = append(l.FileSystems, usable(id))
	}
	return l
}

// partial is a listing of which a page was lost.
func partial(l efs.Listing) efs.Listing {
	l.Complete = false
	return l
}

// given is a table made from listings of home.
func given(portOf map[string]int) *ports.Table {
	table := &ports.Table{Targets: map[string]ports.Target{}, Source: home, LastUpdate: noon.Add(-time.Hour)}
	for id, port := range portOf {
		table.Targets[id] = ports.Target{Name: id, Port: port}
	}
	return table
}

func retired(table *ports.Table, retired ...int) *ports.Table {
	table.Retired = retired
	return table
}

func volume(name, fileSystem string, port int) ports.Volume {
	return ports.Volume{Name: name, On: ports.Key{FileSystem: fileSystem}, Port: port, Loopback: true}
}

func root(v ports.Volume) ports.Volume {
	v.Root = true
	return v
}

// point puts a volume on the access point fsap-1.
func point(v ports.Volume) ports.Volume {
	v.On.AccessPoint = "fsap-1"
	return v
}

func absent(times int, ids ...string) ports.State {
	s := ports.State{Absences: map[string]int{}, CountedAt: noon.Add(-time.Minute)}
	for _, id := range ids {
		s.Absences[id] = times
	}
	return s
}

func portsOf(table ports.Table) map[string]int {
	all := map[string]int{}
	for _, key := range table.Keys() {
		all[key.String()], _ = table.Port(key)
	}
	return all
}

// outcome is what a test says of an Output.
type outcome struct {
	Ports       map[string]int // by key
	Retired     []int
	Corrections []string // volume: from -> to
	Events      []string // and conditions: kind file-system volume
	Confirm     []string
	Gone        []string
}

var shortNames = map[string]string{
	wellknown.EventFileSystemFound: "Found", wellknown.EventFileSystemGone: "Gone",
	wellknown.EventFileSystemMissing: "Missing", wellknown.EventFileSystemUnusable: "Unusable",
	wellknown.EventOutOfPorts: "OutOfPorts", wellknown.EventTableFull: "TableFull",
	wellknown.EventAddressConflict: "Ambiguous", wellknown.EventPortConflict: "Conflict",
}

func outcomeOf(out ports.Output) outcome {
	o := outcome{Ports: portsOf(out.Table), Retired: out.Table.Retired, Confirm: out.Confirm, Gone: out.Gone}
	for _, c := range out.Corrections {
		o.Corrections = append(o.Corrections, fmt.Sprintf("%s: %d -> %d", c.Volume, c.From, c.To))
	}
	all := slices.Concat(out.Events, out.Conditions)
	slices.SortStableFunc(all, func(a, b ports.Event) int {
		return strings.Compare(a.FileSystem+" "+shortNames[a.Reason], b.FileSystem+" "+shortNames[b.Reason])
	})
	for _, n := range all {
		line := shortNames[n.Reason] + " " + n.FileSystem
		if n.Volume != "" {
			line += " " + n.Volume
		}
		o.Events = append(o.Events, line)
	}
	return o
}

// apply returns the next input after an output was applied.
func apply(in ports.Input, out ports.Output) ports.Input {
	table := out.Table.Clone()
	in.Table, in.State, in.Gone = &table, out.State, nil
	corrected := map[string]int{}
	for _, c := range out.Corrections {
		corrected[c.Volume] = c.To
	}
	var volumes []ports.Volume
	for _, v := range in.Volumes {
		if to, ok := corrected[v.Name]; ok {
			v.Port = to
		}
		volumes = append(volumes, v)
	}
	in.Volumes = volumes
	in.Now = in.Now.Add(time.Minute)
	return in
}

type kept map[string]int

// assignmentTest is one row of the rule; Range and Now are filled in.
type assignmentTest struct {
	in   ports.Input
	want outcome
}

func runAssignments(t *testing.T, tests map[string]assignmentTest) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := tt.in
			in.Now = noon
			if in.Range.Count == 0 {
				in.Range = fourPorts
			}
			out := ports.Assign(in)
			if diff := cmp.Diff(tt.want, outcomeOf(out), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("outcome mismatch (-want +got):\n%s", diff)
			}
			again := ports.Assign(apply(in, out))
			if again.Changed || len(again.Corrections) > 0 || len(again.Events) > 0 {
				t.Errorf("applied and done again:\n%s", cmp.Diff(out, again, compareTables))
			}
		})
	}
}
