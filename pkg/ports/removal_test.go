package ports_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func TestRemoval(t *testing.T) {
	known := given(kept{"fs-1": 20490, "fs-2": 20491})
	missing := given(kept{"fs-1": 20490, "fs-2": 20491})
	fs1 := missing.Targets["fs-1"]
	fs1.NotFoundSince = noon.Add(-time.Hour)
	fs1.AccessPoints = map[string]ports.AccessPoint{"fsap-1": {Port: 20493}}
	missing.Targets["fs-1"] = fs1
	unpinned := given(kept{"fs-2": 20491})
	fs1.PinnedOnly = true
	unpinned.Targets["fs-1"] = fs1
	both := kept{"fs-1": 20490, "fs-1/fsap-1": 20493, "fs-2": 20491}
	gone := []string{"fs-1"}
	empty := efs.Listing{Complete: true, ReadAt: noon}
	pinned := ports.Table{Targets: map[string]ports.Target{"fs-1": {}}}
	runAssignments(t, map[string]assignmentTest{
		"the first listing that lacks a target is only reported": {
			in: ports.Input{Table: known, Listing: listing("fs-2")},
			want: outcome{
				Ports: kept{"fs-1": 20490, "fs-2": 20491}, Events: []string{"Missing fs-1"},
			},
		},
		"the third has the caller ask": {
			in: ports.Input{Table: missing, Listing: listing("fs-2"), State: absent(2, "fs-1")},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"}, Confirm: []string{"fs-1"},
			},
		},
		"not found, it goes, and its ports are retired": {
			in: ports.Input{
				Table: missing, Listing: listing("fs-2", "fs-3"), State: absent(2, "fs-1"), Gone: gone,
				Volumes: []ports.Volume{root(volume("r", "fs-1", 20490))},
			},
			want: outcome{
				Ports: kept{"fs-2": 20491, "fs-3": 20492}, Retired: []int{20493, 20490},
				Events: []string{"Gone fs-1", "Found fs-3"}, Gone: gone,
			},
		},
		"a volume's file system stays though it is gone": {
			in: ports.Input{
				Table: missing, Listing: listing("fs-2"), State: absent(3, "fs-1"), Gone: gone,
				Volumes: []ports.Volume{volume("v", "fs-1", 20490)},
			},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"}, Gone: gone,
			},
		},
		"nothing goes before the third listing, whatever the caller says": {
			in: ports.Input{Table: missing, Listing: listing("fs-2"), State: absent(1, "fs-1"), Gone: gone},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"},
			},
		},
		"nothing goes after a partial listing": {
			in: ports.Input{Table: missing, Listing: partial(listing("fs-2")), State: absent(3, "fs-1"), Gone: gone},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"},
			},
		},
		"nothing goes after an empty listing": {
			in: ports.Input{Table: missing, Listing: empty, State: absent(3, "fs-1"), Gone: gone},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"},
			},
		},
		"nothing goes without a listing": {
			in: ports.Input{Table: missing, State: absent(3, "fs-1"), Gone: gone},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"},
			},
		},
		"what is listed does not go": {
			in: ports.Input{Table: missing, Listing: listing("fs-1", "fs-2"), State: absent(3, "fs-1"), Gone: gone},
			want: outcome{
				Ports: both, Events: []string{"Found fs-1"},
			},
		},
		"what was only ever pinned is not gone: another account has it": {
			in: ports.Input{
				Table: unpinned, Listing: listing("fs-2"), State: absent(3, "fs-1"), Gone: gone,
				Volumes: []ports.Volume{volume("v", "fs-1", 20490)},
			},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"},
			},
		},
		"nor is it while something is begun on it": {
			in: ports.Input{
				Table: unpinned, Listing: listing("fs-2"), State: absent(3, "fs-1"), Gone: gone, Begun: gone,
			},
			want: outcome{
				Ports: both, Events: []string{"Missing fs-1"},
			},
		},
		"with nothing on it, it goes like others": {
			in: ports.Input{Table: unpinned, Listing: listing("fs-2"), State: absent(3, "fs-1"), Gone: gone},
			want: outcome{
				Ports: kept{"fs-2": 20491}, Retired: []int{20493, 20490}, Events: []string{"Gone fs-1"}, Gone: gone,
			},
		},
		"what is gone goes, whatever was begun on it": {
			in: ports.Input{Table: missing, Listing: listing("fs-2"), State: absent(3, "fs-1"), Gone: gone, Begun: gone},
			want: outcome{
				Ports: kept{"fs-2": 20491}, Retired: []int{20493, 20490}, Events: []string{"Gone fs-1"}, Gone: gone,
			},
		},
		"what is pinned is not missing": {
			in: ports.Input{
				Table: missing, Listing: listing("fs-2"), State: absent(3, "fs-1"), Gone: gone, Pinned: pinned,
			},
			want: outcome{
				Ports: both, Events: []string{"Found fs-1"},
			},
		},
	})
}

// All calls, as the caller makes them.
func TestGoneAfterThreeListings(t *testing.T) {
	in := ports.Input{Table: given(kept{"fs-1": 20490, "fs-2": 20491}), Range: fourPorts, Now: noon}
	polls := []struct {
		listing efs.Listing
		confirm []string
	}{
		{listing("fs-2"), nil},
		{listing("fs-1", "fs-2"), nil}, // back: counting starts anew
		{listing("fs-2"), nil},
		{partial(listing()), nil}, // says nothing
		{listing("fs-2"), nil},
		{listing("fs-2"), []string{"fs-1"}},
	}
	for i, poll := range polls {
		in.Listing = poll.listing
		in.Listing.ReadAt = noon.Add(time.Duration(i) * time.Minute)
		for range 2 { // a listing that is looked at twice counts once
			out := ports.Assign(in)
			if diff := cmp.Diff(poll.confirm, out.Confirm); diff != "" {
				t.Fatalf("poll %d: confirm mismatch (-want +got):\n%s", i, diff)
			}
			in = apply(in, out)
		}
	}
	in.Gone = []string{"fs-1"}
	out := ports.Assign(in)
	if diff := cmp.Diff(map[string]int{"fs-2": 20491}, portsOf(out.Table)); diff != "" {
		t.Errorf("ports mismatch (-want +got):\n%s", diff)
	}
}

// TestUnpinnedTargetInUseStays has the administrator's table lost, and with it a file system of
// another account, which for this account's API does not exist.
func TestUnpinnedTargetInUseStays(t *testing.T) {
	shared := volume("v", "fs-shared", 20491)
	for name, before := range map[string]*ports.Table{
		"pinned under this version":       given(kept{"fs-2": 20490}),
		"in the table of an earlier one":  given(kept{"fs-2": 20490, "fs-shared": 20491}),
		"pinned before there was a table": nil,
	} {
		in := ports.Input{Table: before, Pinned: pins(kept{"fs-shared": 20491}), Range: fourPorts, Now: noon}
		in.Volumes = []ports.Volume{shared}
		in.Listing = listing("fs-2")
		in = apply(in, ports.Assign(in))
		in.Pinned = ports.Table{}
		for i := range 5 {
			in.Listing.ReadAt = noon.Add(time.Duration(i+1) * time.Minute)
			in.Gone = []string{"fs-shared"}
			out := ports.Assign(in)
			if len(out.Gone)+len(out.Confirm) > 0 || out.Table.Targets["fs-shared"].Port != 20491 {
				t.Fatalf("%s: poll %d: gone %v, to be confirmed %v, ports %v", name, i, out.Gone, out.Confirm, portsOf(out.Table))
			}
			in = apply(in, out)
		}
	}
}

// TestPinnedOnly is about the mark: what a listing has shown can be proven gone.
func TestPinnedOnly(t *testing.T) {
	marked := given(kept{"fs-1": 20490})
	target := marked.Targets["fs-1"]
	target.PinnedOnly = true
	marked.Targets["fs-1"] = target
	pinned := pins(kept{"fs-1": 0})
	for name, c := range map[string]struct {
		in   ports.Input
		want bool
	}{
		"pinned, not listed yet":            {ports.Input{Pinned: pinned}, true},
		"pinned, and listed":                {ports.Input{Pinned: pinned, Listing: listing("fs-1")}, false},
		"pinned, listings lack it":          {ports.Input{Table: given(kept{"fs-1": 20490}), Pinned: pinned, Listing: listing("fs-2")}, true},
		"pinned, a part of a listing does":  {ports.Input{Table: given(kept{"fs-1": 20490}), Pinned: pinned, Listing: partial(listing("fs-2"))}, false},
		"known before, no listing yet":      {ports.Input{Table: given(kept{"fs-1": 20490}), Pinned: pinned}, false},
		"marked, and listed at last":        {ports.Input{Table: marked, Listing: listing("fs-1")}, false},
		"marked, and not pinned any longer": {ports.Input{Table: marked, Listing: listing("fs-2")}, true},
		"never pinned":                      {ports.Input{Table: given(kept{"fs-1": 20490}), Listing: listing("fs-2")}, false},
		"rebuilt from a volume":             {ports.Input{Volumes: []ports.Volume{volume("v", "fs-1", 20490)}}, false},
	} {
		c.in.Range, c.in.Now = fourPorts, noon
		out := ports.Assign(c.in)
		if got := out.Table.Targets["fs-1"].PinnedOnly; got != c.want {
			t.Errorf("%s: marked is %v", name, got)
		}
		if again := ports.Assign(apply(c.in, out)); again.Changed {
			t.Errorf("%s: written twice", name)
		}
	}
}

func TestFreedPortsAreNotGivenInTheSameCall(t *testing.T) {
	in := ports.Input{
		Table: given(kept{"fs-1": 20490}), Listing: listing("fs-2"), State: absent(3, "fs-1"),
		Gone: []string{"fs-1"}, Range: ports.Range{Base: 20490, Count: 1}, Now: noon,
	}
	first := ports.Assign(in)
	want := outcome{Retired: []int{20490}, Events: []string{"Gone fs-1", "OutOfPorts fs-2"}, Gone: []string{"fs-1"}, Ports: kept{}}
	if diff := cmp.Diff(want, outcomeOf(first)); diff != "" {
		t.Errorf("first outcome mismatch (-want +got):\n%s", diff)
	}
	second := ports.Assign(apply(in, first))
	want = outcome{Ports: kept{"fs-2": 20490}, Retired: []int{}, Events: []string{"Found fs-2"}}
	if diff := cmp.Diff(want, outcomeOf(second)); diff != "" {
		t.Errorf("second outcome mismatch (-want +got):\n%s", diff)
	}
}

func TestAccessPoints(t *testing.T) {
	known := given(kept{"fs-1": 20490})
	withPoint := given(nil)
	withPoint.Targets["fs-1"] = ports.Target{
		Name: "fs-1", Port: 20490, IAM: true, AccessPoints: map[string]ports.AccessPoint{"fsap-1": {Port: 20491}},
	}
	wanted := []ports.Key{{FileSystem: "fs-1", AccessPoint: "fsap-1"}, {FileSystem: "fs-0", AccessPoint: "fsap-2"}}
	pinned := ports.Table{Targets: map[string]ports.Target{
		"fs-1": {AccessPoints: map[string]ports.AccessPoint{"fsap-9": {Port: 20493}}},
	}}
	both := kept{"fs-1": 20490, "fs-1/fsap-1": 20491}
	runAssignments(t, map[string]assignmentTest{
		"get a port when they are asked for and their file system has one": {
			in:   ports.Input{Table: known, Demand: ports.Demand{AccessPoints: wanted}},
			want: outcome{Ports: both},
		},
		"keep it, and no other gets it": {
			in:   ports.Input{Table: withPoint, Listing: listing("fs-1", "fs-2")},
			want: outcome{Ports: kept{"fs-1": 20490, "fs-1/fsap-1": 20491, "fs-2": 20492}, Events: []string{"Found fs-2"}},
		},
		"lose it when they are not demanded": {
			in:   ports.Input{Table: withPoint, Demand: ports.Demand{Known: true}},
			want: outcome{Ports: kept{"fs-1": 20490}, Retired: []int{20491}},
		},
		"keep it while a volume names them": {
			in: ports.Input{
				Table: withPoint, Demand: ports.Demand{Known: true},
				Volumes: []ports.Volume{point(volume("v", "fs-1", 20491))},
			},
			want: outcome{Ports: both},
		},
		"correct the volumes on them": {
			in: ports.Input{Table: withPoint, Volumes: []ports.Volume{point(volume("v", "fs-1", 20490))}},
			want: outcome{
				Ports: both, Corrections: []string{"v: 20490 -> 20491"},
			},
		},
		"may be pinned": {
			in:   ports.Input{Table: withPoint, Pinned: pinned, Demand: ports.Demand{Known: true, AccessPoints: wanted}},
			want: outcome{Ports: kept{"fs-1": 20490, "fs-1/fsap-1": 20491, "fs-1/fsap-9": 20493}},
		},
		"have no place when their file system has no port": {
			in: ports.Input{
				Volumes: []ports.Volume{point(volume("v", "fs-1", 20490))},
				Range:   ports.Range{Base: 20490, Count: 1},
			},
			want: outcome{Retired: []int{20490}, Events: []string{"OutOfPorts fs-1"}},
		},
	})
}
