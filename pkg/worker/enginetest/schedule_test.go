package enginetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

func TestPhases(t *testing.T) {
	op := func(kind operations.Kind, volume, p string) operations.Operation {
		return operations.Operation{Kind: kind, Owner: operations.Owner{Volume: volume}, Path: p}
	}
	release := func(volume, p string) operations.Operation { return op(operations.Release, volume, p) }
	cleanup := func(volume, p string) operations.Operation { return op(operations.Cleanup, volume, p) }
	setup := func(volume, p string) operations.Operation { return op(operations.Setup, volume, p) }
	restore := func(volume, p string) operations.Operation { return op(operations.Restore, volume, p) }
	tests := map[string]struct {
		ops  []operations.Operation
		want [][][]int
	}{
		"nothing": {},
		"releases, cleanups, setups, restores": {
			[]operations.Operation{restore("a", "/a"), setup("b", "/b"), op("?", "c", "/c"), cleanup("d", "/d"), release("e", "/e"), setup("f", "/f")},
			[][][]int{{{2}}, {{4}}, {{3}}, {{1}, {5}}, {{0}}},
		},
		"a path that is restored is set up after that": {
			[]operations.Operation{setup("a", "/a"), restore("b", "/a"), restore("c", "/c"), setup("d", "/d")},
			[][][]int{{{3}}, {{1, 2, 0}}},
		},
		"the same path":           {[]operations.Operation{setup("a", "/x"), setup("b", "/y"), setup("c", "/x")}, [][][]int{{{0, 2}, {1}}}},
		"above":                   {[]operations.Operation{setup("a", "/x/y/z"), setup("b", "/y"), setup("c", "/x")}, [][][]int{{{0, 2}, {1}}}},
		"below":                   {[]operations.Operation{setup("a", "/x"), setup("b", "/x2"), setup("c", "/x/y/z")}, [][][]int{{{0, 2}, {1}}}},
		"both below a third":      {[]operations.Operation{setup("a", "/x/a"), setup("b", "/x/b"), setup("c", "/x")}, [][][]int{{{0, 1, 2}}}},
		"below what is not there": {[]operations.Operation{setup("a", "/x/a"), setup("b", "/x/b")}, [][][]int{{{0}, {1}}}},
		"the same volume":         {[]operations.Operation{cleanup("a", "/x"), cleanup("b", "/y"), cleanup("a", "/z")}, [][][]int{{{0, 2}, {1}}}},
		"through several":         {[]operations.Operation{cleanup("a", "/x"), cleanup("b", "/y"), cleanup("b", "/x/z"), cleanup("c", "/y/z")}, [][][]int{{{0, 1, 2, 3}}}},
		"paths that are refused":  {[]operations.Operation{setup("a", ""), setup("b", "/"), setup("c", "../x"), setup("d", "x//y")}, [][][]int{{{0}, {1}, {2}, {3}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, batch.Phases(tt.ops)); diff != "" {
				t.Errorf("phases mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// Setups that run side by side make the directories on the way once, and get a gid each.
func TestSetupsSideBySide(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	var ops []operations.Operation
	for n := range 64 {
		ops = append(ops, allocating(setupOf(owner("c1", "ns", n), fmt.Sprintf("/deep/%d/%d/%d", n%2, n%4, n))))
	}
	byGID := map[int]string{}
	for i, gid := range w.gidsOf(ops...) {
		if gid < 2000 || byGID[gid] != "" {
			t.Errorf("%s has the gid %d, and so has %q", ops[i].Path, gid, byGID[gid])
		}
		byGID[gid] = ops[i].Path
		w.there(ops[i].Path)
	}
	w.wantWholeLedger(byGID)
}
