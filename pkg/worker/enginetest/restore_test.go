package enginetest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

func TestRestore(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	if err := os.Chmod(w.path("/ns/data"), 0o711); err != nil {
		t.Fatal(err)
	}
	w.done(cleanupOf(a, "/ns/data"))

	op := restoreOf(b, "/other/place", a.ClaimUID)
	w.done(op)
	w.there("/other/place/file")
	w.gone("/.efs-stunnel/trash/"+a.Volume, "/.efs-stunnel/trash/@"+a.Volume)
	if info, err := os.Stat(w.path("/other/place")); err != nil || info.Mode() != os.ModeDir|0o711 {
		t.Errorf("the mode is %v (%v)", info.Mode(), err)
	}
	before := w.dump()
	w.done(op)
	if diff := difference(before, w.dump()); diff != "" {
		t.Errorf("the second restore changed something:\n%s", diff)
	}
	w.done(cleanupOf(b, "/other/place"))
	w.there("/.efs-stunnel/trash/" + b.Volume + "/file")
}

func TestRestoreOfTheLastLife(t *testing.T) {
	for swept := range 3 { // slots, from the first one on
		t.Run(fmt.Sprint(swept), func(t *testing.T) {
			w := newFixture(t)
			a := owner("c1", "ns", 1)
			a.ClaimUID = "00000000-0000-4000-8000-000000000001"
			a.Volume = "pvc-" + a.ClaimUID
			for _, file := range []string{"one", "two", "three"} {
				w.now = w.now.Add(time.Minute)
				w.done(setupOf(a, "/ns/data"))
				w.write("/ns/data/"+file, "")
				w.done(cleanupOf(a, "/ns/data"))
			}
			for n := range swept {
				slot := incarnation(a.Volume, n+1)
				w.remove("/.efs-stunnel/trash/" + "@" + slot)
				w.remove("/.efs-stunnel/trash/" + slot + "/" + []string{"one", "two"}[n])
				w.remove("/.efs-stunnel/trash/" + slot)
			}
			w.done(restoreOf(owner("c1", "ns", 2), "/ns/back", a.ClaimUID))
			w.there("/ns/back/three")
		})
	}
}

func TestRestoreOfAnAdoptedVolume(t *testing.T) {
	w := newFixture(t)
	w.write("/ns/data/file", "x")
	a := owner("c1", "ns", 1)
	a.Volume = "anything"
	adopt := setupOf(a, "/ns/data")
	adopt.Adopt, adopt.Made = true, true
	w.done(adopt, cleanupOf(owner("c1", "x", 1), "/nothing"))
	w.done(cleanupOf(a, "/ns/data"))
	w.done(restoreOf(owner("c1", "ns", 2), "/ns/back", a.ClaimUID))
	w.there("/ns/back/file")
}

func TestRestoreRefusals(t *testing.T) {
	a := owner("c1", "ns", 1)
	tests := map[string]struct {
		op     operations.Operation
		reason operations.Reason
	}{
		"another namespace's":       {restoreOf(owner("c1", "other", 1), "/other/data", a.ClaimUID), operations.OwnedByOtherNamespace},
		"another cluster's":         {restoreOf(owner("c2", "ns", 2), "/ns/back", a.ClaimUID), operations.OwnedByOtherCluster},
		"what is not there":         {restoreOf(owner("c1", "ns", 2), "/ns/back", "unknown"), operations.NothingToRestore},
		"to a directory":            {restoreOf(owner("c1", "ns", 2), "/there", a.ClaimUID), operations.PathTaken},
		"to the path of an owner":   {restoreOf(owner("c1", "ns", 2), "/ns/taken", a.ClaimUID), operations.PathTaken},
		"into a volume":             {restoreOf(owner("c1", "ns", 2), "/ns/taken/sub", a.ClaimUID), operations.Nested},
		"through a link":            {restoreOf(owner("c1", "ns", 2), "/link/back", a.ClaimUID), operations.SymlinkInPath},
		"a uid that is a path":      {restoreOf(owner("c1", "ns", 2), "/ns/back", "../../ns/taken"), operations.BadOperation},
		"a uid that names a record": {restoreOf(owner("c1", "ns", 2), "/ns/back", ""), operations.BadOperation},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.done(setupOf(a, "/ns/data"), setupOf(owner("c1", "ns", 9), "/ns/taken"))
			w.done(cleanupOf(a, "/ns/data"))
			w.write("/there/file", "x")
			w.link("ns", "/link")
			before := w.dump()
			w.do(tt.op, operations.Failed, tt.reason)
			if diff := difference(before, w.dump()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRestoredIsNotWhatIsAtItsPath: a run died between its entry and the rename, and another claim has left a directory
// at the path.
func TestRestoredIsNotWhatIsAtItsPath(t *testing.T) {
	w := newFixture(t)
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.done(cleanupOf(a, "/ns/data"))
	op := restoreOf(b, "/ns/back", a.ClaimUID)
	w.crash(op, "restore /ns/back")
	w.done(setupOf(c, "/ns/back"))
	w.do(leaving(cleanupOf(c, "/ns/back")), operations.Done, operations.StillOwned)
	w.do(op, operations.Failed, operations.PathTaken)
	w.there("/.efs-stunnel/trash/"+a.Volume+"/file", "/.efs-stunnel/trash/@"+a.Volume)
}
