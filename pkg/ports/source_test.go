package ports_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

func foreign(v ports.Volume) ports.Volume {
	v.Foreign = true
	return v
}

func TestListingsOfAnotherSource(t *testing.T) {
	const away = "999999999999/eu-west-1"
	of := func(source string, ids ...string) efs.Listing {
		l := listing(ids...)
		l.Source = source
		return l
	}
	table := func(source string, size int) *ports.Table {
		table := given(kept{})
		table.Source = source
		for i := range size {
			table.Targets[fmt.Sprintf("fs-%d", i)] = ports.Target{Port: 20500 + i}
		}
		return table
	}
	pinned := table("", 2)
	for id, target := range pinned.Targets {
		target.PinnedOnly = true
		pinned.Targets[id] = target
	}
	for name, c := range map[string]struct {
		in      ports.Input
		foreign bool
		source  string // of the table afterwards
	}{
		"the first listing of a new cluster":            {ports.Input{Listing: of(home, "fs-0")}, false, home},
		"the same source":                               {ports.Input{Table: table(home, 2), Listing: of(home, "fs-0")}, false, home},
		"the same source, all are replaced":             {ports.Input{Table: table(home, 2), Listing: of(home, "fs-8")}, false, home},
		"another source with none":                      {ports.Input{Table: table(home, 2), Listing: of(away, "fs-8")}, true, home},
		"another source with too few":                   {ports.Input{Table: table(home, 4), Listing: of(away, "fs-0", "fs-8")}, true, home},
		"another source with enough":                    {ports.Input{Table: table(home, 3), Listing: of(away, "fs-0", "fs-8")}, false, away},
		"an older table, none":                          {ports.Input{Table: table("", 1), Listing: of(home, "fs-8")}, true, ""},
		"an older table, too few":                       {ports.Input{Table: table("", 7), Listing: of(home, "fs-0", "fs-1")}, true, ""},
		"an older table, enough":                        {ports.Input{Table: table("", 6), Listing: of(home, "fs-0", "fs-1")}, false, home},
		"an unknown source with none":                   {ports.Input{Table: table(home, 1), Listing: of("", "fs-8")}, true, home},
		"an unknown source with enough":                 {ports.Input{Table: table(home, 1), Listing: of("", "fs-0")}, false, home},
		"a partial listing of another source":           {ports.Input{Table: table(home, 1), Listing: partial(of(away, "fs-8"))}, true, home},
		"no file system at all":                         {ports.Input{Table: table(home, 1), Listing: of("")}, false, home},
		"another source, and only pinned ones before":   {ports.Input{Table: pinned, Listing: of(away, "fs-8")}, false, away},
		"another source, and all before are pinned":     {ports.Input{Table: table(home, 1), Pinned: pins(kept{"fs-0": 0}), Listing: of(away, "fs-8")}, false, away},
		"a lost table, and volumes on what is listed":   {ports.Input{Volumes: []ports.Volume{volume("v", "fs-0", 20500)}, Listing: of(home, "fs-0")}, false, home},
		"a lost table, and volumes on what is not":      {ports.Input{Volumes: []ports.Volume{volume("v", "fs-0", 20500)}, Listing: of(home, "fs-8")}, true, ""},
		"a lost table, and root volumes on others":      {ports.Input{Volumes: []ports.Volume{root(volume("r", "fs-0", 20500))}, Listing: of(home, "fs-8")}, true, ""},
		"a lost table, volumes of another installation": {ports.Input{Volumes: []ports.Volume{foreign(volume("v", "fs-0", 20500))}, Listing: of(home, "fs-8")}, false, home},
		"accepted by the administrator, in the table":   {ports.Input{Table: table(away, 2), Listing: of(away, "fs-8")}, false, away},
		"accepted by the administrator, without source": {ports.Input{Table: table("", 0), Listing: of("", "fs-8")}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Range, c.in.Now = fourPorts, noon
			c.in.State, c.in.Gone = absent(5, "fs-0", "fs-1"), []string{"fs-0", "fs-1"}
			out := ports.Assign(c.in)
			if (out.Foreign != "") != c.foreign || out.Table.Source != c.source {
				t.Errorf("foreign: %q; the table is of %q", out.Foreign, out.Table.Source)
			}
			if !c.foreign {
				return
			}
			if got := outcomeOf(out); len(got.Gone)+len(got.Confirm)+len(got.Retired) > 0 || got.Ports["fs-8"] != 0 || strings.Contains(fmt.Sprint(got.Events), "Missing") {
				t.Errorf("it had consequences: %+v", got)
			}
			again := ports.Assign(apply(c.in, out))
			if again.Changed || again.Foreign == "" {
				t.Errorf("the second time, changed is %v, foreign %q", again.Changed, again.Foreign)
			}
		})
	}
}

// TestListingsOfAnotherAccountAreNotCounted between those of the cluster's own account.
func TestListingsOfAnotherAccountAreNotCounted(t *testing.T) {
	in := ports.Input{Table: given(kept{"fs-1": 20490, "fs-2": 20491}), Range: fourPorts, Now: noon}
	foreign := listing("fs-foreign")
	foreign.Source = "999999999999/us-east-1"
	for i, poll := range []struct {
		listing efs.Listing
		confirm []string
	}{
		{listing("fs-2"), nil}, {foreign, nil}, {foreign, nil}, {foreign, nil},
		{listing("fs-2"), nil}, {foreign, nil}, {listing("fs-2"), []string{"fs-1"}}, {foreign, nil},
	} {
		in.Listing = poll.listing
		in.Listing.ReadAt = noon.Add(time.Duration(i) * time.Minute)
		out := ports.Assign(in)
		if diff := cmp.Diff(poll.confirm, out.Confirm); diff != "" {
			t.Fatalf("poll %d: confirm mismatch (-want +got):\n%s", i, diff)
		}
		in = apply(in, out)
	}
}

// TestForeignMessage gives the administrator the reason and the remedy.
func TestForeignMessage(t *testing.T) {
	l := listing("fs-8")
	l.Source = "999999999999/eu-west-1"
	in := ports.Input{Table: given(kept{"fs-1": 20490, "fs-2": 20491}), Listing: l, Range: fourPorts, Now: noon}
	for _, part := range []string{
		"lists 1 file systems of 999999999999/eu-west-1, among them 0 of the 2 of the table, which is of " + home,
		"--aws-region", "set account_and_region to 999999999999/eu-west-1 in key efs-stunnel.yaml of ConfigMap efs-stunnel",
	} {
		if got := ports.Assign(in).Foreign; !strings.Contains(got, part) || len(got) > 1000 {
			t.Errorf("%q is not in: %s", part, got)
		}
	}
}
