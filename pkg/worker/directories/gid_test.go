package directories

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// gidsOf runs operations that must be done, and gives what they report.
func (w *fixture) gidsOf(ops ...operations.Operation) []int {
	w.t.Helper()
	var gids []int
	for i, result := range w.run(ops...) {
		if result.State != operations.Done {
			w.t.Fatalf("%s of %s: %+v", ops[i].Kind, ops[i].Path, result)
		}
		gids = append(gids, result.GID)
	}
	return gids
}

func (w *fixture) wantGIDs(want []int, ops ...operations.Operation) {
	w.t.Helper()
	if got := w.gidsOf(ops...); !slices.Equal(got, want) {
		w.t.Errorf("the gids are %v, want %v", got, want)
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give directories away")
	}
}

func TestAllocatedGIDs(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.workers = 1 // so the gids are in the order of the operations
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	w.wantGIDs([]int{2000, 2001}, allocating(setupOf(a, "/ns/a")), allocating(setupOf(b, "/ns/b")))
	info, err := os.Stat(w.path("/ns/b"))
	if err != nil {
		t.Fatal(err)
	}
	if userOf(info) != 0 || groupOf(info) != 2001 || info.Mode().Perm() != 0o771 {
		t.Errorf("the directory is %v %d:%d", info.Mode(), userOf(info), groupOf(info))
	}
	if !keepsSetgid(t) {
		t.Log("this file system drops setgid")
	} else if info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the mode is %v, without setgid", info.Mode())
	}
	w.wantGIDs([]int{2001}, setupOf(c, "/ns/b")) // whoever shares the directory shares its gid
	w.wantGIDs([]int{2000}, allocating(setupOf(a, "/ns/a")))
	w.wantGIDs([]int{2002}, allocating(setupOf(c, "/ns/c")))
}

// TestManagerGetsTheGIDOfEachDirectory: operations side by side get their gids in any order, and a volume with
// another one's would give its pods another tenant's data.
func TestManagerGetsTheGIDOfEachDirectory(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	var ops []operations.Operation
	for n := range 200 {
		ops = append(ops, allocating(setupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/%d", n))))
	}
	f := w.open(nil)
	defer f.Close()
	report, err := operations.DecodeReport(f.Run(t.Context(), ops, nil).Encode(), len(ops))
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range ops {
		info, err := os.Stat(w.path(op.Path))
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Results[i]; got.State != operations.Done || got.GID != groupOf(info) || got.GID < 2000 {
			t.Errorf("%s has the group %d, and is reported as %+v", op.Path, groupOf(info), got)
		}
	}
}

func TestAllocatedGIDStandsBesideAnOwner(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	op := allocating(setupOf(owner("c1", "ns", 1), "/ns/a"))
	op.UID, op.GIDMin, op.GIDMax = 1000, 1000, 2000
	w.wantGIDs([]int{1000}, op)
	info, err := os.Stat(w.path("/ns/a"))
	if err != nil {
		t.Fatal(err)
	}
	if userOf(info) != 1000 || groupOf(info) != 1000 || info.Mode().Perm() != 0o771 {
		t.Errorf("the directory is %v %d:%d", info.Mode(), userOf(info), groupOf(info))
	}
}

// keepsSetgid says whether the temporary directory's file system does: tmpfs does not.
func keepsSetgid(t *testing.T) bool {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o771|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	return err == nil && info.Mode()&os.ModeSetgid != 0
}

// A gid belongs to the data: no other directory gets it while the data is anywhere.
func TestGIDsStayWithTheData(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.workers = 1 // so the gids are in the order of the operations
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	d, e := owner("c1", "ns", 4), owner("c1", "ns", 5)
	w.wantGIDs([]int{2000, 2001}, allocating(setupOf(a, "/ns/a")), allocating(setupOf(b, "/ns/b")))
	w.done(releaseOf(a, "/ns/a"))
	deleted := cleanupOf(b, "/ns/b")
	deleted.Keep = "forever"
	w.done(deleted)
	w.wantGIDs([]int{2002}, allocating(setupOf(c, "/ns/b")))                // the path is free, the gid is not
	w.wantGIDs([]int{2000}, allocating(setupOf(d, "/ns/a")))                // retained data keeps its own
	w.wantGIDs([]int{2001}, restoreOf(e, "/ns/e", b.ClaimUID))              // and what was deleted, too
	w.wantGIDs([]int{2003}, allocating(setupOf(owner("c1", "x", 1), "/x"))) // whatever came back
}

func TestGIDsAreReusedWhenTheRangeIsUsedUp(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.workers = 1 // so the gids are in the order of the operations
	small := func(n int, p string) operations.Operation {
		op := allocating(setupOf(owner("c1", "ns", n), p))
		op.GIDMin, op.GIDMax = 100, 104
		return op
	}
	w.wantGIDs([]int{100, 101, 102, 103, 104},
		small(1, "/live"), small(2, "/retained"), small(3, "/trashed"), small(4, "/swept"), small(5, "/restored"))
	w.done(releaseOf(owner("c1", "ns", 2), "/retained"))
	keep := cleanupOf(owner("c1", "ns", 3), "/trashed")
	keep.Keep = "1h"
	w.done(keep, cleanupOf(owner("c1", "ns", 4), "/swept"), cleanupOf(owner("c1", "ns", 5), "/restored"))
	w.wantGIDs([]int{104}, restoreOf(owner("c1", "ns", 6), "/back", "c1-ns-5"))
	w.done(releaseOf(owner("c1", "ns", 6), "/back"))
	w.do(small(7, "/new"), operations.Failed, operations.GIDsExhausted)
	w.gone("/new", "/.efs-stunnel/owners/new")

	w.sweep(0)
	w.wantGIDs([]int{103}, small(7, "/new"))
	w.do(small(8, "/more"), operations.Failed, operations.GIDsExhausted)
	w.now = w.now.Add(time.Hour + time.Hour/100)
	w.sweep(0)
	w.wantGIDs([]int{102}, small(8, "/more"))
}

func TestGIDOfADirectoryThatIsThere(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.workers = 1 // so the gids are in the order of the operations
	for p, gid := range map[string]int{"/in": 2500, "/out": 7} {
		if err := os.Mkdir(w.path(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(w.path(p), 0, gid); err != nil {
			t.Fatal(err)
		}
	}
	w.wantGIDs([]int{2500, 0, 2501},
		allocating(setupOf(owner("c1", "ns", 1), "/in")),
		allocating(setupOf(owner("c1", "ns", 2), "/out")),
		allocating(setupOf(owner("c1", "ns", 3), "/new")))
}

// A run that dies between the gid and the owner gives the same gid to the same volume, and
// another one to others.
func TestGIDAfterACrash(t *testing.T) {
	asRoot(t)
	for name, next := range map[string]struct {
		op  operations.Operation
		gid int
	}{
		"the same volume":           {allocating(setupOf(owner("c1", "ns", 1), "/ns/a")), 2000},
		"another volume":            {allocating(setupOf(owner("c1", "ns", 2), "/ns/b")), 2001},
		"another volume's, sharing": {allocating(setupOf(owner("c1", "ns", 2), "/ns/a")), 2001},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			f := w.open(failAt("write /.efs-stunnel/owners/ns/a/@pvc-c1-ns-1"))
			f.Run(t.Context(), []operations.Operation{allocating(setupOf(owner("c1", "ns", 1), "/ns/a"))}, nil)
			f.Close()
			w.there("/.efs-stunnel/gids/2000")
			w.wantGIDs([]int{next.gid}, next.op)
		})
	}
}

// The file of a gid is created in its place: one that was cut off is that of no operation, and no other
// directory gets its gid.
func TestGIDWhoseFileWasCutOff(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	w.write(".efs-stunnel/gids/2000", `{"volume":"pvc-c1-ns-1","pa`)
	w.wantGIDs([]int{2001}, allocating(setupOf(owner("c1", "ns", 1), "/ns/a")))
}

// A Job that took over the lock has allocated a gid that this one did not see.
func TestGIDThatIsTakenAfterTheListing(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	b := w.begin()
	if err := b.gids.list(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.write(".efs-stunnel/gids/2000", `{}`)
	result := b.do(t.Context(), allocating(setupOf(owner("c1", "ns", 1), "/ns/a")))
	if result.State != operations.Done || result.GID != 2001 {
		t.Errorf("got %+v", result)
	}
}
