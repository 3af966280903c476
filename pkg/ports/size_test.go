package ports_test

import (
	"fmt"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// large is a file system whose entry takes some 40 KB, so that few of them fill the table.
func large(id string) efs.FileSystem {
	fs := usable(id)
	fs.Name = strings.Repeat("n", 40_000)
	return fs
}

// TestTheTableStaysBelowItsLimit with far more newcomers of every kind than it can hold. Those
// that are in it stay, and get what is new of them.
func TestTheTableStaysBelowItsLimit(t *testing.T) {
	in := ports.Input{
		Range: ports.Range{Base: 20490, Count: 5000}, Now: noon, VPCID: "vpc-1", DNSSuffix: "efs.test",
		Listing: listing(), Pinned: pins(kept{"nas-1": 0, "nas-2": 26000}), Table: given(kept{"fs-00": 20490}),
		Demand: ports.Demand{Known: true, AccessPoints: []ports.Key{{FileSystem: "fs-00", AccessPoint: "fsap-1"}}},
	}
	for i := range 40 {
		in.Listing.FileSystems = append(in.Listing.FileSystems, large(fmt.Sprintf("fs-%02d", i)))
	}
	out := ports.Assign(in)
	served := portsOf(out.Table)
	if size := len(ports.Encode(out.Table)); size > ports.MaxTableBytes || size < ports.MaxTableBytes-42_000 {
		t.Errorf("the table of %d keys has %d bytes", len(served), size)
	}
	for _, id := range []string{"fs-00", "nas-1", "nas-2", "fs-00/fsap-1"} {
		if served[id] == 0 {
			t.Errorf("%s has no port", id)
		}
	}
	refused := 0
	for _, n := range out.Conditions {
		if n.Reason == wellknown.EventTableFull {
			refused++
		}
	}
	if len(served)+refused != 43 || refused == 0 {
		t.Errorf("%d served, %d reported as not served", len(served), refused)
	}

	in = apply(in, out)
	if again := ports.Assign(in); again.Changed || len(again.Events) > 0 {
		t.Errorf("done again, it changes: %v", outcomeOf(again).Events)
	}

	// The table is full now. Volumes bring their file system back, and no newcomer is added.
	in.Volumes = []ports.Volume{volume("v", "fs-volume", 24000)}
	in.Pinned = pins(kept{"nas-1": 0, "nas-2": 26000, "nas-3": 26001})
	in.Pinned.Targets["nas-3"] = ports.Target{Port: 26001, DNSName: strings.Repeat("d", 41_000)}
	out = ports.Assign(in)
	after := portsOf(out.Table)
	if after["fs-volume"] != 24000 || after["nas-3"] != 0 {
		t.Errorf("fs-volume has port %d, nas-3 %d", after["fs-volume"], after["nas-3"])
	}
	for key, port := range served {
		if after[key] != port {
			t.Errorf("%s had port %d and has %d", key, port, after[key])
		}
	}

	// One that goes makes room for the next.
	in = apply(in, out)
	in.Pinned = pins(kept{"nas-1": 0, "nas-2": 26000})
	in.Listing.FileSystems = in.Listing.FileSystems[2:]
	in.State.Absences = map[string]int{"fs-00": 3, "fs-01": 3}
	in.Gone = []string{"fs-00", "fs-01"}
	out = ports.Assign(in)
	if got := portsOf(out.Table); got["fs-01"] != 0 || len(got) < len(after)-1 {
		t.Errorf("%d keys have ports, before %d had", len(got), len(after))
	}
}

// TestHowManyFileSystemsFit is the number that docs/reference/limits.md names.
func TestHowManyFileSystemsFit(t *testing.T) {
	in := ports.Input{
		Range: ports.Range{Base: 20490, Count: 3000}, Now: noon, VPCID: "vpc-1", DNSSuffix: "efs.us-east-1.amazonaws.com",
		Listing: listing(),
	}
	for i := range 2500 {
		fs := usable(fmt.Sprintf("fs-%017x", i))
		mount := fs.MountTargets[0]
		for _, zone := range []string{"us-east-1b", "us-east-1c"} {
			mount.SubnetID, mount.ZoneName = "subnet-0123456789abcdef0"+zone[9:], zone
			fs.MountTargets = append(fs.MountTargets, mount)
		}
		in.Listing.FileSystems = append(in.Listing.FileSystems, fs)
	}
	out := ports.Assign(in)
	if got := len(out.Table.Targets); got < 1500 || got == 2500 {
		t.Errorf("%d file systems with mount targets in three zones fit", got)
	}
}
