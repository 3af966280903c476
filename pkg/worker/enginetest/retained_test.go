package enginetest

import (
	"os"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
)

// An owner that leaves protects the directory, because its cleanup may have been called off. Owners
// that leave together go one after the other once the manager says that other volumes exist.
func TestLastOfTheOwnersThatLeaveTogetherRemovesTheDirectory(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	w.do(cleanupOf(a, "/ns/data"), operations.Blocked, operations.StillOwned)
	blocked := w.do(cleanupOf(b, "/ns/data"), operations.Blocked, operations.StillOwned)
	if len(blocked.Owners) != 1 || blocked.Owners[0] != a {
		t.Errorf("blocked by %+v, want %+v", blocked.Owners, a)
	}
	results := w.run(leaving(cleanupOf(a, "/ns/data")), leaving(cleanupOf(b, "/ns/data")))
	if results[0].State != operations.Done || results[0].Reason != operations.StillOwned || !isPlainlyDone(results[1]) {
		t.Errorf("got %+v", results)
	}
	w.gone("/ns/data", "/.efs-stunnel/owners/ns")
	w.there("/.efs-stunnel/trash/" + b.Volume)
}

// A cleanup had begun and was called off: the volume is bound again, or its policy is Retain. No
// other volume's cleanup takes the directory, whatever cluster that is in.
func TestCleanupThatWasCalledOffProtectsItsDirectory(t *testing.T) {
	for name, other := range map[string]operations.Owner{"same cluster": owner("c1", "ns", 2), "other cluster": owner("c2", "ns", 2)} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			a := owner("c1", "ns", 1)
			w.done(setupOf(a, "/ns/data"))
			w.write("/ns/data/file", "x")
			w.crash(cleanupOf(a, "/ns/data"), "trash /ns/data")
			join := setupOf(other, "/ns/data")
			join.ShareAcrossClusters = true
			w.done(join)
			w.do(leaving(cleanupOf(other, "/ns/data")), operations.Done, operations.StillOwned)
			w.there("/ns/data/file")
		})
	}
}

// The manager takes such a cleanup back: the volume is an owner like any other, with the right that it had.
func TestCleanupThatWasCalledOffIsTakenBack(t *testing.T) {
	a := owner("c1", "ns", 1)
	back := setupOf(a, sourcePath)
	back.Adopt, back.ShareAcrossNamespaces, back.ShareAcrossClusters = true, true, true
	for name, step := range map[string]string{
		"begun":          "trash " + sourcePath,
		"with a record":  "write /.efs-stunnel/trash/@" + a.Volume,
		"with its entry": "rename /.efs-stunnel/owners" + sourcePath + "/@" + a.Volume,
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			w.crash(cleanupOf(a, sourcePath), step)
			w.now = w.now.Add(time.Minute)
			for range 2 {
				w.done(back)
			}
			w.gone("/.efs-stunnel/owners" + sourcePath + "/@" + a.Volume + ".leaving")
			w.cloned(theClone())
			w.done(cleanupOf(a, sourcePath))
			w.gone(sourcePath)
		})
	}
	t.Run("ended", func(t *testing.T) {
		w := newFixture(t)
		w.withSource()
		w.done(cleanupOf(a, sourcePath))
		w.do(back, operations.Failed, operations.NotFound)
		w.gone(sourcePath, "/.efs-stunnel/owners/ns")
	})
}

// Thousands of volumes share a directory and are deleted together. However many they are, each
// costs the same few changes of the file system, and each entry is read once.
func TestManyOwnersLeaveInFewStepsEach(t *testing.T) {
	steps := func(volumes int) int {
		w := newFixture(t)
		var setups, cleanups []operations.Operation
		for n := range volumes {
			setups = append(setups, setupOf(owner("c1", "ns", n), "/ns/data"))
			cleanups = append(cleanups, leaving(cleanupOf(owner("c1", "ns", n), "/ns/data")))
		}
		w.done(setups...)
		count := 0
		f := w.open(func(string) error { count++; return nil })
		defer f.Close()
		if report := batch.Run(t.Context(), f, cleanups, batch.Options{}); !report.Succeeded() {
			t.Fatalf("%+v", report)
		}
		w.gone("/ns/data", "/.efs-stunnel/owners/ns")
		return count
	}
	few, many := steps(10), steps(200)
	if perVolume := (many - few) / 190; perVolume > 4 {
		t.Errorf("%d steps for 10 volumes, %d for 200: %d for each", few, many, perVolume)
	}
}

// The maker of a directory, whose data was retained, is released. Whether the other owner is leaving
// already or comes later, it does not take the data along.
func TestReleaseGivesNoOtherOwnerTheRightToRemove(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.do(cleanupOf(b, "/ns/data"), operations.Blocked, operations.StillOwned)
	w.done(releaseOf(a, "/ns/data"))
	w.do(cleanupOf(b, "/ns/data"), operations.Done, operations.Retained)
	for n := range 3 {
		next := owner("c1", "ns", 3+n)
		w.done(setupOf(next, "/ns/data"))
		w.do(cleanupOf(next, "/ns/data"), operations.Done, operations.Retained)
	}
	w.there("/ns/data/file")
}

// B had the data retained, A the directory made: the data stays when A goes, whoever leaves first.
func TestRetainedDataStaysInADirectoryMadeForAnotherVolume(t *testing.T) {
	w := newFixture(t)
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c2", "ns", 3)
	join := setupOf(c, "/ns/data")
	join.ShareAcrossClusters = true
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"), join)
	w.write("/ns/data/file", "x")
	results := w.run(releaseOf(b, "/ns/data"), cleanupOf(a, "/ns/data"))
	if results[1].Reason != operations.Retained {
		t.Errorf("got %+v", results)
	}
	w.do(cleanupOf(c, "/ns/data"), operations.Done, operations.Retained)
	w.there("/ns/data/file")
}

// A person removes retained data: the next volume at the path is like any other, for any namespace
// and class, and so is one above or below it.
func TestPathIsFreeOnceAPersonRemovedItsRetainedData(t *testing.T) {
	for name, next := range map[string]operations.Operation{
		"the same path":     setupOf(owner("c1", "other", 2), "/ns/deep/data"),
		"a path above it":   setupOf(owner("c1", "other", 2), "/ns/deep"),
		"a path below it":   setupOf(owner("c1", "other", 2), "/ns/deep/data/sub"),
		"a restore to it":   restoreOf(owner("c1", "ns", 2), "/ns/deep/data", "c1-ns-9"),
		"with a gid of its": allocating(setupOf(owner("c1", "other", 2), "/ns/deep/data")),
	} {
		t.Run(name, func(t *testing.T) {
			asRoot(t)
			w := newFixture(t)
			a, trashed := owner("c1", "ns", 1), owner("c1", "ns", 9)
			w.done(setupOf(a, "/ns/deep/data"), setupOf(trashed, "/ns/other"))
			w.done(releaseOf(a, "/ns/deep/data"), cleanupOf(trashed, "/ns/other"))
			mark := "/.efs-stunnel/owners/ns/deep/data/@" + a.Volume + ".retained"
			w.there(mark)
			if result := w.run(next)[0]; result.State != operations.Failed {
				t.Errorf("while the data is there: %+v", result)
			}
			if err := os.RemoveAll(w.path("/ns/deep")); err != nil {
				t.Fatal(err)
			}
			if result := w.run(next)[0]; result.State != operations.Done {
				t.Fatalf("once it is gone: %+v", result)
			}
			w.gone(mark)
			w.done(cleanupOf(next.Owner, next.Path))
			w.gone(next.Path)
		})
	}
}

func TestReleaseTouchesNoData(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	w.write("/ns/data/file", "x")
	w.done(releaseOf(a, "/ns/data"), releaseOf(a, "/ns/data"))
	if made, ok := w.entry("/ns/data", b.Volume)["made"]; ok {
		t.Errorf("the right to remove the directory was handed on: made is %v", made)
	}
	w.done(releaseOf(b, "/ns/data"))
	w.there("/ns/data/file", "/.efs-stunnel/owners/ns/data/@"+a.Volume+".retained", "/.efs-stunnel/owners/ns/data/@"+b.Volume+".retained")
	w.done(setupOf(owner("c1", "ns", 3), "/ns/data")) // retained data comes back under its name
	w.there("/ns/data/file")
	w.do(setupOf(owner("c1", "other", 3), "/ns/data"), operations.Failed, operations.OwnedByOtherNamespace)
}

func TestReleaseEndsACleanupThatHadBegun(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"), setupOf(b, "/ns/data"))
	w.do(cleanupOf(a, "/ns/data"), operations.Blocked, operations.StillOwned)
	w.done(releaseOf(a, "/ns/data"))
	w.gone("/.efs-stunnel/owners/ns/data/@"+a.Volume, "/.efs-stunnel/owners/ns/data/@"+a.Volume+".leaving")
	w.do(cleanupOf(b, "/ns/data"), operations.Done, operations.Retained)
	w.there("/ns/data", "/.efs-stunnel/owners/ns/data/@"+a.Volume+".retained")
}

// What was remembered never had a directory, or has it in the trash: nothing is retained.
func TestReleaseWithoutADirectoryLeavesNothing(t *testing.T) {
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	w.crash(cleanupOf(a, "/ns/data"), "remove /.efs-stunnel/owners/ns/data/@"+a.Volume+".leaving")
	w.done(releaseOf(a, "/ns/data"))
	w.gone("/.efs-stunnel/owners/ns")
}

// leaving is a cleanup that leaves the directory to others.
func leaving(op operations.Operation) operations.Operation {
	op.LeaveToOthers = true
	return op
}
