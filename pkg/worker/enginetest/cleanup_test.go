package enginetest

import (
	"errors"
	"os"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

func TestCleanupMovesTheDirectoryToTheTrash(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/ns/data", "/.efs-stunnel/owners/ns")
	w.there("/ns", "/.efs-stunnel/trash/"+a.Volume+"/file", "/.efs-stunnel/trash/@"+a.Volume)

	before := w.dump()
	w.done(cleanupOf(a, "/ns/data"))
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("the second cleanup changed something:\n%s", diff)
	}
}

func TestCleanupWithoutADirectoryDropsTheEntry(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	if err := os.Remove(w.path("/ns/data")); err != nil {
		t.Fatal(err)
	}
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/.efs-stunnel/owners/ns", "/.efs-stunnel/trash/"+a.Volume)
}

// Two claims, one directory: the last one out takes it away, whoever made it.
func TestCleanupOfASharedDirectory(t *testing.T) {
	for name, makerFirst := range map[string]bool{"the maker goes first": true, "the maker goes last": false} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
			w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
			w.write("/ns/data/file", "x")
			first, second := a, b
			if !makerFirst {
				first, second = b, a
			}
			blocked := w.do(cleanupOf(first, "/ns/data"), operations.Blocked, operations.StillOwned)
			if len(blocked.Owners) != 1 || blocked.Owners[0] != second {
				t.Errorf("blocked by %+v, want %+v", blocked.Owners, second)
			}
			w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+first.Volume+".leaving")

			op := cleanupOf(first, "/ns/data")
			op.LeaveToOthers = true
			w.do(op, operations.Done, operations.StillOwned)
			w.there("/ns/data/file")
			w.gone("/.efs-stunnel/owners/ns/data/@" + first.Volume + ".leaving")
			w.done(cleanupOf(second, "/ns/data"))
			w.gone("/ns/data")
			w.there("/.efs-stunnel/trash/" + second.Volume + "/file")
		})
	}
}

// The owner that blocks may be one whose volume no longer exists: the manager releases it, and the same
// cleanup goes on, in one batch and whatever the order of asking. The data was retained, so it stays.
func TestBlockedCleanupGoesOnAfterARelease(t *testing.T) {
	w := newFixture(t)
	a, remembered := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(remembered, "/ns/data"))
	w.write("/ns/data/file", "x")
	blocked := w.do(cleanupOf(a, "/ns/data"), operations.Blocked, operations.StillOwned)
	results := w.run(cleanupOf(a, "/ns/data"), releaseOf(blocked.Owners[0], "/ns/data"))
	if results[0].State != operations.Done || results[0].Reason != operations.Retained || !isPlainlyDone(results[1]) {
		t.Errorf("got %+v", results)
	}
	w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+remembered.Volume+".retained")
	w.gone("/.efs-stunnel/owners/ns/data/@"+a.Volume+".leaving", "/.efs-stunnel/trash/"+a.Volume)

	w.do(cleanupOf(a, "/ns/data"), operations.Done, operations.Retained) // its report may have been lost
}

func TestCleanupLeavesWhatAnotherClusterOwns(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c2", "ns", 1)
	join := setupOf(b, "/ns/data")
	join.ShareAcrossClusters = true
	w.done(setupOf(a, "/ns/data"), join)
	result := w.do(cleanupOf(a, "/ns/data"), operations.Done, operations.StillOwned)
	if len(result.Owners) != 1 || result.Owners[0] != b {
		t.Errorf("kept for %+v, want %+v", result.Owners, b)
	}
	w.there("/ns/data")
	again := w.do(cleanupOf(a, "/ns/data"), operations.Done, operations.StillOwned) // its report may have been lost
	if len(again.Owners) != 1 || again.Owners[0] != b {
		t.Errorf("then kept for %+v, want %+v", again.Owners, b)
	}
	w.done(cleanupOf(b, "/ns/data"))
	w.gone("/ns/data")
}

func TestOwnersOfTheOperationsClusterAreNamedFirst(t *testing.T) {
	w := newFixture(t)
	a, b, c := owner("c9", "ns", 1), owner("c1", "ns", 1), owner("c9", "ns", 3)
	join := setupOf(b, "/ns/data")
	join.ShareAcrossClusters = true
	third := setupOf(c, "/ns/data")
	third.ShareAcrossClusters = true
	w.done(setupOf(a, "/ns/data"), join, third)
	result := w.do(cleanupOf(a, "/ns/data"), operations.Blocked, operations.StillOwned)
	if len(result.Owners) != 2 || result.Owners[0] != c || result.Owners[1] != b {
		t.Errorf("the owners are %+v", result.Owners)
	}
}

// Nothing happens to data for a volume that does not own it: a forged one, one of another
// cluster with the same name, one of an earlier claim.
func TestCleanupWithoutAnOwnEntry(t *testing.T) {
	a := owner("c1", "ns", 1)
	sameName := a
	sameName.Cluster = "c2"
	earlier := a
	earlier.ClaimUID = "earlier"
	tests := map[string]struct {
		op     operations.Operation
		reason operations.Reason
	}{
		"another volume":               {cleanupOf(owner("c1", "evil", 7), "/ns/data"), operations.StillOwned},
		"the same name, other cluster": {cleanupOf(sameName, "/ns/data"), operations.StillOwned},
		"the same name, other claim":   {cleanupOf(earlier, "/ns/data"), operations.StillOwned},
		"data without an owner":        {cleanupOf(owner("c1", "evil", 7), "/unowned"), operations.NotOwned},
		"a directory of directories":   {cleanupOf(owner("c1", "evil", 7), "/ns"), operations.NotOwned},
		"something inside a volume":    {cleanupOf(owner("c1", "evil", 7), "/ns/data/sub"), operations.NotOwned},
		"something behind a link":      {cleanupOf(owner("c1", "evil", 7), "/link/data"), operations.NotOwned},
		"a file":                       {cleanupOf(owner("c1", "evil", 7), "/ns/data/sub/file"), operations.NotOwned},
		"nothing":                      {cleanupOf(owner("c1", "evil", 7), "/nothing"), ""},
		"a release of another volume":  {releaseOf(owner("c1", "evil", 7), "/ns/data"), ""},
		"a release of the same name":   {releaseOf(sameName, "/ns/data"), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.done(setupOf(a, "/ns/data"))
			w.write("/ns/data/sub/file", "x")
			w.write("/unowned/file", "x")
			w.link("ns", "/link")
			before := w.dump()
			w.do(tt.op, operations.Done, tt.reason)
			if diff := difference(before, w.dump()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a volume wrote into a directory that was there before it is its namespace's, as retained data is.
func TestDirectoryThatWasNotMadeStaysItsNamespaces(t *testing.T) {
	a := owner("c1", "ns", 1)
	a.NamespaceUID, a.Class = "uid-1", "secure"
	next := func(edit func(o *operations.Owner)) operations.Owner {
		o := a
		o.Volume, o.Claim, o.ClaimUID = "pvc-next", "next", "next"
		edit(&o)
		return o
	}
	for name, tt := range map[string]struct {
		next   operations.Owner
		reason operations.Reason // of its refusal
	}{
		"the same claim again":           {a, ""},
		"a claim of its namespace":       {next(func(*operations.Owner) {}), ""},
		"another namespace":              {next(func(o *operations.Owner) { o.Namespace = "other" }), operations.OwnedByOtherNamespace},
		"a namespace that was made anew": {next(func(o *operations.Owner) { o.NamespaceUID = "uid-2" }), operations.OwnedByOtherNamespace},
		"another class":                  {next(func(o *operations.Owner) { o.Class = "open" }), operations.OwnedByOtherClass},
		"another cluster":                {next(func(o *operations.Owner) { o.Cluster = "c2" }), operations.OwnedByOtherCluster},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.write("/ns/data/file", "x")
			w.done(setupOf(a, "/ns/data"))
			for range 2 { // its first report may have been lost
				w.do(cleanupOf(a, "/ns/data"), operations.Done, operations.NotMade)
			}
			w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+a.Volume+".retained")
			if tt.reason != "" {
				w.do(setupOf(tt.next, "/ns/data"), operations.Failed, tt.reason)
				return
			}
			w.done(setupOf(tt.next, "/ns/data"))
			result := w.run(cleanupOf(tt.next, "/ns/data"))[0]
			if result.State != operations.Done || result.Reason != operations.Retained && result.Reason != operations.NotMade {
				t.Errorf("got %+v", result)
			}
			w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+a.Volume+".retained")
		})
	}
}

// A person removed the directory before its volume ended: nothing is left to mark.
func TestCleanupOfAnAdoptedDirectoryThatIsGoneLeavesNoMark(t *testing.T) {
	w := newFixture(t)
	w.write("/ns/data/file", "x")
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	if err := os.RemoveAll(w.path("/ns/data")); err != nil {
		t.Fatal(err)
	}
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/.efs-stunnel/owners/ns")
}

// In one batch the name is free for the next claim, which finds nothing of the last one.
func TestCleanupsComeBeforeSetups(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.done(setupOf(b, "/ns/data"), cleanupOf(a, "/ns/data"))
	w.there("/ns/data", "/.efs-stunnel/trash/"+a.Volume+"/file")
	w.gone("/ns/data/file")
}

// A claim whose volume was cleaned before it was ever bound starts again under the same names.
func TestEachIncarnationOfAVolumeHasItsSlotInTheTrash(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	for i, file := range []string{"one", "two", "three"} {
		w.now = w.now.Add(time.Minute)
		w.done(setupOf(a, "/ns/data"))
		w.write("/ns/data/"+file, "")
		w.done(cleanupOf(a, "/ns/data"))
		w.gone("/ns/data")
		w.there("/.efs-stunnel/trash/" + incarnation(a.Volume, i+1) + "/" + file)
	}
}

// A setup cancels a cleanup that has begun, and the incarnation that it begins has its own slot.
func TestSetupCancelsACleanupThatHasBegun(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	w.do(cleanupOf(a, "/ns/data"), operations.Blocked, operations.StillOwned)
	w.done(setupOf(a, "/ns/data"))
	w.there("/.efs-stunnel/owners/ns/data/@" + a.Volume)
	w.gone("/.efs-stunnel/owners/ns/data/@" + a.Volume + ".leaving")
	w.do(leaving(cleanupOf(b, "/ns/data")), operations.Done, operations.StillOwned)
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/ns/data", "/.efs-stunnel/owners/ns")
}

func TestOwnerWhoseCleanupHasBegunStillProtectsTheData(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	w.do(cleanupOf(a, "/ns/data"), operations.Blocked, operations.StillOwned)
	w.done(releaseOf(b, "/ns/data"))
	w.do(setupOf(owner("c1", "other", 1), "/ns/data"), operations.Failed, operations.OwnedByOtherNamespace)
	w.do(setupOf(owner("c1", "other", 1), "/ns/data/sub"), operations.Failed, operations.Nested)
}

func TestCleanupIsRefusedWhileAVolumeIsInside(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.write(".efs-stunnel/owners/ns/data/sub/@pvc-x", `{"cluster":"c2","namespace":"n","claim":"c","claimUID":"x"}`)
	w.write("/ns/data/sub/file", "x")
	w.do(cleanupOf(a, "/ns/data"), operations.Failed, operations.Nested)
	w.there("/ns/data/sub/file")
}

// crash runs one operation until a step, as a process that dies there.
func (w *fixture) crash(op operations.Operation, step string) {
	w.t.Helper()
	f := w.open(failAt(step))
	defer f.Close()
	if result := batch.Run(w.t.Context(), f, []operations.Operation{op}, batch.Options{}).Results[0]; result.State != operations.NotDone {
		w.t.Fatalf("it was never at %q: %+v", step, result)
	}
}

// What appears under the name after the directory was moved is not the volume's.
func TestCleanupThatDiedAfterItsMoveMovesNothingElse(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.crash(cleanupOf(a, "/ns/data"), "remove /.efs-stunnel/owners/ns/data/@"+a.Volume+".leaving")
	w.gone("/ns/data")
	w.write("/ns/data/file", "an administrator's")
	w.done(cleanupOf(a, "/ns/data"))
	w.there("/ns/data/file")
	w.gone("/.efs-stunnel/owners/ns")
}

// A claim that starts again while its cleanup is half done has two incarnations, and both end.
func TestIncarnationThatBeginsDuringACleanup(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.crash(cleanupOf(a, "/ns/data"), "remove /.efs-stunnel/owners/ns/data/@"+a.Volume+".leaving")
	w.now = w.now.Add(time.Second)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/ns/data")
	w.there("/.efs-stunnel/trash/" + a.Volume + "~2/file")
}

// Only what was inspected goes to the trash, even if another directory takes its place.
func TestDirectoryReplacedBeforeItsMoveIsMovedBack(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.write("/ns/other/file", "precious")
	f := w.open(func(step string) error {
		if step != "trash /ns/data" {
			return nil
		}
		return errors.Join(os.Rename(w.path("/ns/data"), w.path("/ns/moved")), os.Rename(w.path("/ns/other"), w.path("/ns/data")))
	})
	result := batch.Run(t.Context(), f, []operations.Operation{cleanupOf(a, "/ns/data")}, batch.Options{}).Results[0]
	f.Close()
	if result.State != operations.Failed || result.Reason != operations.Changed {
		t.Errorf("got %+v", result)
	}
	w.sweep(0)
	w.there("/ns/data/file", "/ns/moved/file")
	if data, err := os.ReadFile(w.path("/ns/data/file")); string(data) != "precious" {
		t.Errorf("the data is %q (%v)", data, err)
	}
	w.wantEmptyTrash()
}

// TestDirectoryOfAVolumeWithoutAnEntryStays: the cleanup of a volume was called off when it had
// ended already, and the last owner in the ledger must not take the directory from it.
func TestDirectoryOfAVolumeWithoutAnEntryStays(t *testing.T) {
	w := newFixture(t)
	saved, last, later := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	w.done(setupOf(saved, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.done(setupOf(last, "/ns/data"))
	early := cleanupOf(saved, "/ns/data")
	early.LeaveToOthers = true
	w.do(early, operations.Done, operations.StillOwned)
	op := cleanupOf(last, "/ns/data")
	op.LeaveToOthers, op.KeepDirectory = true, true
	w.do(op, operations.Done, operations.StillOwned)
	w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+last.Volume+".retained")
	w.done(setupOf(later, "/ns/data"))
	w.do(cleanupOf(later, "/ns/data"), operations.Done, operations.Retained)
	w.there("/ns/data/file")
}
