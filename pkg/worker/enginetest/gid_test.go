package enginetest

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
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

// firstGID is what a setup gets on a file system that has no others.
func firstGID(t *testing.T, op operations.Operation) int { return newFixture(t).gidsOf(op)[0] }

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
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	gids := w.gidsOf(allocating(setupOf(a, "/ns/a")), allocating(setupOf(b, "/ns/b")))
	info, err := os.Stat(w.path("/ns/b"))
	if err != nil {
		t.Fatal(err)
	}
	if fsroot.UserOf(info) != 0 || fsroot.GroupOf(info) != gids[1] || info.Mode().Perm() != 0o771 {
		t.Errorf("the directory is %v %d:%d", info.Mode(), fsroot.UserOf(info), fsroot.GroupOf(info))
	}
	if !keepsSetgid(t) {
		t.Log("this file system drops setgid")
	} else if info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("the mode is %v, without setgid", info.Mode())
	}
	w.wantGIDs(gids[1:], setupOf(c, "/ns/b")) // whoever shares the directory shares its gid
	w.wantGIDs(gids[:1], allocating(setupOf(a, "/ns/a")))
	if other := w.gidsOf(allocating(setupOf(c, "/ns/c"))); slices.Contains(gids, other[0]) {
		t.Errorf("the gids are %v, and %d for another directory", gids, other)
	}
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
	report, err := operations.DecodeReport(batch.Run(t.Context(), f, ops, batch.Options{}).Encode(), len(ops))
	if err != nil {
		t.Fatal(err)
	}
	for i, op := range ops {
		info, err := os.Stat(w.path(op.Path))
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Results[i]; got.State != operations.Done || got.GID != fsroot.GroupOf(info) || got.GID < 2000 {
			t.Errorf("%s has the group %d, and is reported as %+v", op.Path, fsroot.GroupOf(info), got)
		}
	}
}

func TestAllocatedGIDStandsBesideAnOwner(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	op := allocating(setupOf(owner("c1", "ns", 1), "/ns/a"))
	op.UID, op.GIDMin, op.GIDMax = 1000, 1000, 2000
	gid := w.gidsOf(op)[0]
	info, err := os.Stat(w.path("/ns/a"))
	if err != nil {
		t.Fatal(err)
	}
	if fsroot.UserOf(info) != 1000 || gid < 1000 || gid > 2000 || fsroot.GroupOf(info) != gid || info.Mode().Perm() != 0o771 {
		t.Errorf("the directory is %v %d:%d", info.Mode(), fsroot.UserOf(info), fsroot.GroupOf(info))
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
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	d, e := owner("c1", "ns", 4), owner("c1", "ns", 5)
	small := func(o operations.Owner, p string) operations.Operation {
		op := allocating(setupOf(o, p))
		op.GIDMin, op.GIDMax = 100, 103 // so that a gid which was free would be given again
		return op
	}
	gids := w.gidsOf(small(a, "/ns/a"), small(b, "/ns/b"))
	w.done(releaseOf(a, "/ns/a"))
	deleted := cleanupOf(b, "/ns/b")
	deleted.Keep = "forever"
	w.done(deleted)
	gids = append(gids, w.gidsOf(small(c, "/ns/b"))...)                // the path is free, the gid is not
	w.wantGIDs(gids[:1], small(d, "/ns/a"))                            // retained data keeps its own
	w.wantGIDs(gids[1:2], restoreOf(e, "/ns/e", b.ClaimUID))           // and what was deleted, too
	gids = append(gids, w.gidsOf(small(owner("c1", "x", 1), "/x"))...) // whatever came back
	if slices.Sort(gids); !slices.Equal(gids, []int{100, 101, 102, 103}) {
		t.Errorf("the gids are %v", gids)
	}
}

func TestGIDsAreReusedWhenTheRangeIsUsedUp(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	small := func(n int, p string) operations.Operation {
		op := allocating(setupOf(owner("c1", "ns", n), p))
		op.GIDMin, op.GIDMax = 100, 104
		return op
	}
	gids := w.gidsOf(small(1, "/live"), small(2, "/retained"), small(3, "/trashed"), small(4, "/swept"), small(5, "/restored"))
	trashed, swept, restored := gids[2:3], gids[3:4], gids[4:5]
	if all := slices.Sorted(slices.Values(gids)); !slices.Equal(all, []int{100, 101, 102, 103, 104}) {
		t.Errorf("the gids are %v", gids)
	}
	w.done(releaseOf(owner("c1", "ns", 2), "/retained"))
	keep := cleanupOf(owner("c1", "ns", 3), "/trashed")
	keep.Keep = "1h"
	w.done(keep, cleanupOf(owner("c1", "ns", 4), "/swept"), cleanupOf(owner("c1", "ns", 5), "/restored"))
	w.wantGIDs(restored, restoreOf(owner("c1", "ns", 6), "/back", "c1-ns-5"))
	w.done(releaseOf(owner("c1", "ns", 6), "/back"))
	w.do(small(7, "/new"), operations.Failed, operations.GIDsExhausted)
	w.gone("/new", "/.efs-stunnel/owners/new")

	w.sweep(0)
	w.wantGIDs(swept, small(7, "/new"))
	w.do(small(8, "/more"), operations.Failed, operations.GIDsExhausted)
	w.now = w.now.Add(time.Hour + time.Hour/100)
	w.sweep(0)
	w.wantGIDs(trashed, small(8, "/more"))
}

func TestGIDOfADirectoryThatIsThere(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	for p, gid := range map[string]int{"/in": 2500, "/out": 7} {
		if err := os.Mkdir(w.path(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(w.path(p), 0, gid); err != nil {
			t.Fatal(err)
		}
	}
	w.wantGIDs([]int{2500, 0}, allocating(setupOf(owner("c1", "ns", 1), "/in")), allocating(setupOf(owner("c1", "ns", 2), "/out")))
	w.there("/.efs-stunnel/gids/2500")
}

// A run that dies between the gid and the owner gives the same gid to the same volume, and
// another one to others.
func TestGIDAfterACrash(t *testing.T) {
	asRoot(t)
	first := allocating(setupOf(owner("c1", "ns", 1), "/ns/a"))
	for name, next := range map[string]operations.Operation{
		"the same volume":           first,
		"another volume":            allocating(setupOf(owner("c1", "ns", 2), "/ns/b")),
		"another volume's, sharing": allocating(setupOf(owner("c1", "ns", 2), "/ns/a")),
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			f := w.open(failAt("write /.efs-stunnel/owners/ns/a/@pvc-c1-ns-1"))
			batch.Run(t.Context(), f, []operations.Operation{first}, batch.Options{})
			f.Close()
			w.there(fmt.Sprintf("/.efs-stunnel/gids/%d", firstGID(t, first)))
			if gid := w.gidsOf(next)[0]; (gid == firstGID(t, first)) != (next.Volume == first.Volume) {
				t.Errorf("it gets %d", gid)
			}
		})
	}
}

// The file of a gid is created in its place: one that was cut off is that of no operation, and no other
// directory gets its gid.
func TestGIDWhoseFileWasCutOff(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	op := allocating(setupOf(owner("c1", "ns", 1), "/ns/a"))
	w.write(fmt.Sprintf(".efs-stunnel/gids/%d", firstGID(t, op)), `{"volume":"pvc-c1-ns-1","pa`)
	if gid := w.gidsOf(op)[0]; gid == firstGID(t, op) {
		t.Errorf("it gets %d", gid)
	}
}

// A Job that took over the lock has allocated a gid of a crowded range that this one did not see.
func TestGIDThatIsTakenAfterTheListing(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	for gid := 100; gid < 400; gid++ {
		w.write(fmt.Sprintf(".efs-stunnel/gids/%d", gid), `{}`)
	}
	op := allocating(setupOf(owner("c1", "ns", 1), "/ns/a"))
	op.GIDMin, op.GIDMax = 100, 401
	listed := false
	f := w.open(func(step string) error {
		listed = listed || step == "list /.efs-stunnel/gids"
		if listed && step == "write /.efs-stunnel/gids/400" {
			w.write(".efs-stunnel/gids/400", `{}`)
		}
		return nil
	})
	defer f.Close()
	if result := batch.Run(t.Context(), f, []operations.Operation{op}, batch.Options{}).Results[0]; result.GID != 401 {
		t.Errorf("got %+v", result)
	}
}
