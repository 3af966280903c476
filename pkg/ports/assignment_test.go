package ports_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestNewTargets(t *testing.T) {
	unavailable := listing("fs-1", "fs-2")
	unavailable.FileSystems[0].State = efs.Creating
	unread := partial(listing("fs-1", "fs-2"))
	unread.FileSystems[0].MountTargets = nil
	unread.Failed = map[string]error{"fs-1": errors.New("throttled")}
	runAssignments(t, map[string]assignmentTest{
		"get ascending ports in the order of their ids": {
			in: ports.Input{Listing: listing("fs-2", "fs-1")},
			want: outcome{
				Ports:  kept{"fs-1": 20490, "fs-2": 20491},
				Events: []string{"Found fs-1", "Found fs-2"},
			},
		},
		"come after those that have one": {
			in: ports.Input{Table: given(kept{"fs-9": 20490}), Listing: listing("fs-1", "fs-9")},
			want: outcome{
				Ports:  kept{"fs-1": 20491, "fs-9": 20490},
				Events: []string{"Found fs-1"},
			},
		},
		"come from a partial listing too": {
			in: ports.Input{Table: given(kept{"fs-9": 20490}), Listing: partial(listing("fs-1"))},
			want: outcome{
				Ports:  kept{"fs-1": 20491, "fs-9": 20490},
				Events: []string{"Found fs-1"},
			},
		},
		"avoid ports of volumes without a file system": {
			in: ports.Input{
				Listing: listing("fs-1"),
				Volumes: []ports.Volume{volume("static", "", 20490)},
			},
			want: outcome{Ports: kept{"fs-1": 20491}, Events: []string{"Found fs-1"}},
		},
		"need not avoid ports of volumes elsewhere": {
			in: ports.Input{
				Listing: listing("fs-1"),
				Volumes: []ports.Volume{{Name: "nas", On: ports.Key{FileSystem: "fs-7"}, Port: 20490}},
			},
			want: outcome{Ports: kept{"fs-1": 20490}, Events: []string{"Found fs-1"}},
		},
		"avoid reserved ports, NFS's, the agent's and the NodePort range": {
			in: ports.Input{
				Listing: listing("fs-1"),
				Range:   ports.Range{Base: 29999, Count: 2770, Reserved: []int{29999}, NodePorts: nodePorts},
			},
			want: outcome{Ports: kept{"fs-1": 32768}, Events: []string{"Found fs-1"}},
		},
		"leave retired ports alone while there are others": {
			in: ports.Input{Table: retired(given(nil), 20491, 20490), Listing: listing("fs-1")},
			want: outcome{
				Ports: kept{"fs-1": 20492}, Retired: []int{20491, 20490}, Events: []string{"Found fs-1"},
			},
		},
		"take the longest retired port when no other is left": {
			in: ports.Input{
				Table:   retired(given(kept{"fs-1": 20490, "fs-2": 20492}), 20500, 20493, 20491),
				Listing: listing("fs-1", "fs-2", "fs-3"),
			},
			want: outcome{
				Ports:   kept{"fs-1": 20490, "fs-2": 20492, "fs-3": 20493},
				Retired: []int{20500, 20491}, Events: []string{"Found fs-3"},
			},
		},
		"do not take a retired port that a volume still names": {
			in: ports.Input{
				Table: retired(given(nil), 20490, 20491), Listing: listing("fs-1"),
				Range:   ports.Range{Base: 20490, Count: 2},
				Volumes: []ports.Volume{volume("static", "", 20490)},
			},
			want: outcome{Ports: kept{"fs-1": 20491}, Retired: []int{20490}, Events: []string{"Found fs-1"}},
		},
		"have none when no port is left, and others keep theirs": {
			in: ports.Input{
				Table:   given(kept{"fs-8": 20490, "fs-9": 20491}),
				Listing: listing("fs-1", "fs-8", "fs-9"), Range: ports.Range{Base: 20490, Count: 2},
			},
			want: outcome{
				Ports:  kept{"fs-8": 20490, "fs-9": 20491},
				Events: []string{"OutOfPorts fs-1"},
			},
		},
		"wait until they are usable": {
			in: ports.Input{Listing: unavailable},
			want: outcome{
				Ports:  kept{"fs-2": 20490},
				Events: []string{"Unusable fs-1", "Found fs-2"},
			},
		},
		"wait without an event until their mount targets are read": {
			in:   ports.Input{Listing: unread},
			want: outcome{Ports: kept{"fs-2": 20490}, Events: []string{"Found fs-2"}},
		},
		"need a mount target in the cluster's VPC": {
			in:   ports.Input{Listing: listing("fs-1"), VPCID: "vpc-2"},
			want: outcome{Events: []string{"Unusable fs-1"}},
		},
		"are passed over in silence outside the filter": {
			in:   ports.Input{Listing: listing("fs-1", "fs-2"), Filter: efs.Filter{IDs: []string{"fs-2"}}},
			want: outcome{Ports: kept{"fs-2": 20490}, Events: []string{"Found fs-2"}},
		},
	})
}

func TestKnownTargets(t *testing.T) {
	unusable := listing("fs-1")
	unusable.FileSystems[0].ReplicationDestination = true
	runAssignments(t, map[string]assignmentTest{
		"are taken over from the original system, also outside the range": {
			in: ports.Input{Table: given(kept{"fs-1": 31000, "fs-2": 20491}), Listing: listing("fs-1", "fs-2", "fs-3")},
			want: outcome{
				Ports:  kept{"fs-1": 31000, "fs-2": 20491, "fs-3": 20490},
				Events: []string{"Found fs-3"},
			},
		},
		"stay where they are when the range moves": {
			in: ports.Input{
				Table: given(kept{"fs-1": 20490}), Listing: listing("fs-1"),
				Range: ports.Range{Base: 25000, Count: 10},
			},
			want: outcome{Ports: kept{"fs-1": 20490}},
		},
		"stay while unusable, which is reported": {
			in:   ports.Input{Table: given(kept{"fs-1": 20490}), Listing: unusable},
			want: outcome{Ports: kept{"fs-1": 20490}, Events: []string{"Unusable fs-1"}},
		},
		"stay outside the filter": {
			in: ports.Input{
				Table: given(kept{"fs-1": 20490}), Listing: listing("fs-1"),
				Filter: efs.Filter{IDs: []string{"fs-2"}},
			},
			want: outcome{Ports: kept{"fs-1": 20490}},
		},
		"stay without discovery": {
			in:   ports.Input{Table: given(kept{"fs-1": 20490})},
			want: outcome{Ports: kept{"fs-1": 20490}},
		},
	})
}

func TestVolumes(t *testing.T) {
	known := given(kept{"fs-1": 20490, "fs-2": 20491})
	both := listing("fs-1", "fs-2")
	runAssignments(t, map[string]assignmentTest{
		"of a restored cluster whose discovery ran first follow the table": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{
				volume("a", "fs-1", 20491), volume("b", "fs-2", 20490), volume("c", "fs-1", 20490),
			}},
			want: outcome{
				Ports:       kept{"fs-1": 20490, "fs-2": 20491},
				Corrections: []string{"a: 20491 -> 20490", "b: 20490 -> 20491"},
			},
		},
		"on a port without a tunnel give it up for good": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{volume("a", "fs-1", 20493)}},
			want: outcome{
				Ports:       kept{"fs-1": 20490, "fs-2": 20491},
				Retired:     []int{20493},
				Corrections: []string{"a: 20493 -> 20490"},
			},
		},
		"without a port get one": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{volume("a", "fs-1", 0)}},
			want: outcome{
				Ports:       kept{"fs-1": 20490, "fs-2": 20491},
				Corrections: []string{"a: 0 -> 20490"},
			},
		},
		"that are roots are corrected too": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{root(volume("a", "fs-2", 20490))}},
			want: outcome{
				Ports:       kept{"fs-1": 20490, "fs-2": 20491},
				Corrections: []string{"a: 20490 -> 20491"},
			},
		},
		"that another installation made are corrected by that one": {
			in:   ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{foreign(volume("a", "fs-2", 20490))}},
			want: outcome{Ports: kept{"fs-1": 20490, "fs-2": 20491}},
		},
		"bring back what the table lost, with their port": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{volume("a", "fs-0", 20500)}},
			want: outcome{
				Ports:  kept{"fs-0": 20500, "fs-1": 20490, "fs-2": 20491},
				Events: []string{"Missing fs-0"},
			},
		},
		"that are roots bring nothing back while there is a table": {
			in:   ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{root(volume("a", "fs-0", 20492))}},
			want: outcome{Ports: kept{"fs-1": 20490, "fs-2": 20491}},
		},
		"on another's port bring their file system in with a new one": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{volume("a", "fs-0", 20490)}},
			want: outcome{
				Ports:       kept{"fs-0": 20492, "fs-1": 20490, "fs-2": 20491},
				Corrections: []string{"a: 20490 -> 20492"},
				Events:      []string{"Found fs-0"},
			},
		},
		"on another's port with none left are reported": {
			in: ports.Input{
				Table: known, Listing: both, Range: ports.Range{Base: 20490, Count: 2},
				Volumes: []ports.Volume{volume("a", "fs-0", 20490)},
			},
			want: outcome{
				Ports:  kept{"fs-1": 20490, "fs-2": 20491},
				Events: []string{"Conflict fs-0 a", "OutOfPorts fs-0"},
			},
		},
		"on NFS's own port are moved away from it": {
			in: ports.Input{Listing: listing("fs-1"), Volumes: []ports.Volume{volume("a", "fs-1", 2049)}},
			want: outcome{
				Ports:       kept{"fs-1": 20490},
				Corrections: []string{"a: 2049 -> 20490"},
				Events:      []string{"Found fs-1"},
			},
		},
		"with an invalid annotation are reported": {
			in: ports.Input{Table: known, Listing: both, Volumes: []ports.Volume{volume("a", "../fs-1", 20491)}},
			want: outcome{
				Ports:  kept{"fs-1": 20490, "fs-2": 20491},
				Events: []string{"Conflict  a"},
			},
		},
	})
}

func TestLostTable(t *testing.T) {
	runAssignments(t, map[string]assignmentTest{
		"is rebuilt before anything new is assigned": {
			in: ports.Input{Listing: listing("fs-1", "fs-2"), Volumes: []ports.Volume{
				volume("a", "fs-2", 20490), root(volume("r", "fs-3", 31000)), point(volume("p", "fs-4", 20492)),
			}},
			want: outcome{
				Ports:  kept{"fs-1": 20493, "fs-2": 20490, "fs-3": 31000, "fs-4": 20491, "fs-4/fsap-1": 20492},
				Events: []string{"Found fs-1", "Found fs-2", "Missing fs-3", "Missing fs-4"},
			},
		},
		"goes by the most volumes where they disagree": {
			in: ports.Input{Volumes: []ports.Volume{
				volume("a", "fs-1", 20492), volume("b", "fs-1", 20491), volume("c", "fs-1", 20491),
			}},
			want: outcome{
				Ports: kept{"fs-1": 20491}, Retired: []int{20492},
				Corrections: []string{"a: 20492 -> 20491"}, Events: []string{"Found fs-1"},
			},
		},
		"prefers the ports of claims' volumes to those of root volumes": {
			in: ports.Input{Volumes: []ports.Volume{
				root(volume("a", "fs-1", 20490)), root(volume("b", "fs-1", 20490)), volume("c", "fs-1", 20491),
			}},
			want: outcome{
				Ports: kept{"fs-1": 20491}, Retired: []int{20490},
				Corrections: []string{"a: 20490 -> 20491", "b: 20490 -> 20491"}, Events: []string{"Found fs-1"},
			},
		},
		"gives a port that two claim to one of them": {
			in: ports.Input{Volumes: []ports.Volume{
				volume("a", "fs-1", 20490), volume("b", "fs-2", 20490), volume("c", "fs-2", 20490),
			}},
			want: outcome{
				Ports:       kept{"fs-1": 20491, "fs-2": 20490},
				Corrections: []string{"a: 20490 -> 20491"}, Events: []string{"Found fs-1", "Found fs-2"},
			},
		},
	})
}

func TestConditionsAreReportedAsLongAsTheyHold(t *testing.T) {
	in := ports.Input{
		Table: given(kept{"fs-1": 20490, "fs-2": 20491}), Listing: listing("fs-2", "fs-3"),
		Range: ports.Range{Base: 20490, Count: 2}, Now: noon,
	}
	first := ports.Assign(in)
	want := []string{"Missing fs-1", "OutOfPorts fs-3"}
	if diff := cmp.Diff(want, outcomeOf(first).Events); diff != "" {
		t.Fatalf("events mismatch (-want +got):\n%s", diff)
	}
	in = apply(in, first)
	second := ports.Assign(in)
	if diff := cmp.Diff(first.Conditions, second.Conditions); diff != "" || len(second.Events) > 0 {
		t.Errorf("events %v, or no longer a condition:\n%s", second.Events, diff)
	}
	in = apply(in, second)
	in.State = ports.State{} // a new leader
	if diff := cmp.Diff(want, outcomeOf(ports.Assign(in)).Events); diff != "" {
		t.Errorf("events of a new leader (-want +got):\n%s", diff)
	}
}
