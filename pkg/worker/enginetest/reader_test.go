package enginetest

import (
	"os"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// readerOf makes a volume a reader of the directory of an owner.
func readerOf(o, owned operations.Owner, p string) operations.Operation {
	op := setupOf(o, p)
	op.Reads = true
	op.Source = operations.Source{SourcePath: p, SourceVolume: owned.Volume, SourceClaim: owned.Claim, SourceClaimUID: owned.ClaimUID}
	return op
}

const sharedPath = "/team/data"

// newReader returns a fixture with an owner of namespace team and a reader of namespace web.
func newReader(t *testing.T) (w *fixture, owned, reader operations.Owner) {
	t.Helper()
	w = newFixture(t)
	owned, reader = owner("c1", "team", 1), owner("c1", "web", 2)
	owned.Class, reader.Class = "efs", "web-class"
	w.done(setupOf(owned, sharedPath))
	w.write(sharedPath+"/file", "x")
	w.done(readerOf(reader, owned, sharedPath))
	return w, owned, reader
}

// isThere reports whether the directory is at its path.
func (w *fixture) isThere() bool {
	_, err := os.Stat(w.path(sharedPath + "/file"))
	return err == nil
}

func TestReadersEntryIsOfTheOwnersNamespace(t *testing.T) {
	w, owned, reader := newReader(t)
	w.done(readerOf(reader, owned, sharedPath)) // again
	e := w.entry(sharedPath, reader.Volume)
	if e["reads"] != true || e["namespace"] != "team" || e["class"] != "efs" || e["claim"] != reader.Claim || e["made"] != nil {
		t.Errorf("got %v", e)
	}
}

func TestReaderNeedsTheOwnerInTheLedger(t *testing.T) {
	w, owned, reader := newReader(t)
	other := owner("c1", "web", 3)
	for name, op := range map[string]operations.Operation{
		"a volume that does not own it": readerOf(other, owner("c1", "team", 9), sharedPath),
		"a reader":                      readerOf(other, reader, sharedPath),
		"another path":                  readerOf(other, owned, "/team/other"),
		"another claim's uid":           readerOf(other, operations.Owner{Volume: owned.Volume, ClaimUID: "x"}, sharedPath),
		"another cluster's":             readerOf(owner("c2", "web", 3), owned, sharedPath),
	} {
		t.Run(name, func(*testing.T) { w.do(op, operations.Failed, operations.NotOwned) })
	}
	w.do(setupOf(other, sharedPath), operations.Failed, operations.OwnedByOtherNamespace) // to write
}

func TestDeletedReaderRemovesNothing(t *testing.T) {
	w, owned, reader := newReader(t)
	op := cleanupOf(reader, sharedPath)
	op.LeaveToOthers = true // as the manager has it, which knows the owner's volume
	w.do(op, operations.Done, operations.StillOwned)
	if !w.isThere() {
		t.Fatal("the directory is gone")
	}
	w.done(cleanupOf(owned, sharedPath))
	if w.isThere() {
		t.Error("the directory stays after its last owner")
	}
}

// TestDirectoryGoesWithItsLastReader as with the last of several owners. Until then, it is of the owner's namespace.
func TestDirectoryGoesWithItsLastReader(t *testing.T) {
	w, owned, reader := newReader(t)
	op := cleanupOf(owned, sharedPath)
	op.LeaveToOthers = true
	w.do(op, operations.Done, operations.StillOwned)
	w.do(readerOf(owner("c1", "web", 3), reader, sharedPath), operations.Failed, operations.NotOwned)
	w.do(setupOf(owner("c1", "web", 4), sharedPath), operations.Failed, operations.OwnedByOtherNamespace)
	if e := w.entry(sharedPath, reader.Volume); e["namespace"] != "team" || e["made"] != true || !w.isThere() {
		t.Fatalf("the reader has %v", e)
	}
	w.done(cleanupOf(reader, sharedPath))
	if w.isThere() {
		t.Error("the directory stays after its last reader")
	}
}

// TestReadersMarkIsOfTheOwnersNamespace: a directory that was there before its volume stays, for its namespace only.
func TestReadersMarkIsOfTheOwnersNamespace(t *testing.T) {
	w := newFixture(t)
	owned, reader := owner("c1", "team", 1), owner("c1", "web", 2)
	w.write(sharedPath+"/file", "x")
	w.done(setupOf(owned, sharedPath), readerOf(reader, owned, sharedPath))
	op := cleanupOf(owned, sharedPath)
	op.LeaveToOthers = true
	w.do(op, operations.Done, operations.StillOwned)
	w.do(cleanupOf(reader, sharedPath), operations.Done, operations.NotMade)
	w.do(setupOf(owner("c1", "web", 3), sharedPath), operations.Failed, operations.OwnedByOtherNamespace)
	w.done(setupOf(owner("c1", "team", 4), sharedPath))
}

// TestReaderDoesNotRemoveWhatItsOwnerRetained: the owner's volume had the policy Retain, and was deleted as an object.
// The reader's has the policy Delete, and is the last that the cluster knows.
func TestReaderDoesNotRemoveWhatItsOwnerRetained(t *testing.T) {
	w, owned, reader := newReader(t)
	w.do(cleanupOf(reader, sharedPath), operations.Blocked, operations.StillOwned)
	w.done(releaseOf(owned, sharedPath))
	w.do(cleanupOf(reader, sharedPath), operations.Done, operations.Retained)
	if !w.isThere() {
		t.Error("the retained directory is gone")
	}
}

// TestTrashOfAReaderIsOfTheOwnersNamespace, and what is restored from it is no reader's.
func TestTrashOfAReaderIsOfTheOwnersNamespace(t *testing.T) {
	w, owned, reader := newReader(t)
	op := cleanupOf(owned, sharedPath)
	op.LeaveToOthers = true
	w.do(op, operations.Done, operations.StillOwned)
	op = cleanupOf(reader, sharedPath)
	op.Keep = "1h"
	w.done(op)
	w.do(restoreOf(owner("c1", "web", 3), "/web/stolen", reader.ClaimUID), operations.Failed, operations.OwnedByOtherNamespace)
	back := owner("c1", "team", 4)
	w.done(restoreOf(back, "/team/back", reader.ClaimUID))
	if e := w.entry("/team/back", back.Volume); e["reads"] != nil || e["made"] != true {
		t.Errorf("the restored directory is %v's", e)
	}
}

// TestReaderCannotCopyWhatItReads into a directory of its own namespace, which it could write to.
func TestReaderCannotCopyWhatItReads(t *testing.T) {
	w, _, reader := newReader(t)
	result := w.cloneWith(cloneOf(owner("c1", "web", 3), "/web/copy", reader, sharedPath), nil)
	if result.State != operations.Failed || result.Reason != operations.OwnedByOtherNamespace {
		t.Errorf("got %+v", result)
	}
}

// TestOwnerReturnsToItsReaders by a new claim of the same directory, which then outlives them.
func TestOwnerReturnsToItsReaders(t *testing.T) {
	w, owned, reader := newReader(t)
	op := cleanupOf(owned, sharedPath)
	op.LeaveToOthers = true
	w.do(op, operations.Done, operations.StillOwned)
	again := owner("c1", "team", 5)
	op = setupOf(again, sharedPath)
	op.Joins = true // as the manager has it, which knows the reader's volume
	w.done(op, readerOf(owner("c1", "web", 6), again, sharedPath))
	for _, o := range []operations.Owner{reader, owner("c1", "web", 6)} {
		op = cleanupOf(o, sharedPath)
		op.LeaveToOthers = true
		w.do(op, operations.Done, operations.StillOwned)
	}
	if e := w.entry(sharedPath, again.Volume); e["made"] != true || e["reads"] != nil || !w.isThere() {
		t.Errorf("the owner has %v", e)
	}
	w.done(cleanupOf(again, sharedPath))
	if w.isThere() {
		t.Error("the directory stays after its owner")
	}
}

// TestReaderIsTakenBackAsAReader, or not at all: as an owner, its namespace would have the directory.
func TestReaderIsTakenBackAsAReader(t *testing.T) {
	w, _, reader := newReader(t)
	back := setupOf(reader, sharedPath)
	back.Adopt, back.Reads, back.ShareAcrossNamespaces, back.ShareAcrossClusters = true, true, true, true
	w.done(back)
	if e := w.entry(sharedPath, reader.Volume); e["reads"] != true || e["namespace"] != "team" {
		t.Errorf("got %v", e)
	}
	w.do(leaving(cleanupOf(reader, sharedPath)), operations.Done, operations.StillOwned)
	w.do(back, operations.Failed, operations.NotFound)
	copied := cloneOf(owner("c1", "web", 3), "/web/copy", reader, sharedPath)
	if result := w.cloneWith(copied, nil); result.State != operations.Failed {
		t.Errorf("it is copied: %+v", result)
	}
	only := owner("c1", "team", 1) // an owner that only reads stays one
	owns := setupOf(only, sharedPath)
	owns.Adopt, owns.Reads = true, true
	w.done(owns)
	if e := w.entry(sharedPath, only.Volume); e["reads"] == true {
		t.Errorf("got %v", e)
	}
}
