package enginetest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

func TestFirstUseMarksTheFileSystem(t *testing.T) {
	w := newFixture(t)
	w.open(nil).Close()
	data, err := os.ReadFile(w.path(".efs-stunnel/file-system-id"))
	if err != nil || string(data) != fsID+"\n" {
		t.Errorf("the marker is %q (%v)", data, err)
	}
	left, err := os.ReadDir(w.path(".efs-stunnel"))
	if err != nil || len(left) != 1 {
		t.Errorf("there are %v (%v)", left, err)
	}
}

func TestAnotherFileSystemIsNotTouched(t *testing.T) {
	w := newFixture(t)
	w.open(nil).Close()
	before := w.dump()
	_, err := fsroot.Open(t.Context(), w.dir, fsroot.Options{FileSystemID: "fs-other"})
	if err == nil || !strings.Contains(err.Error(), fsID) || !strings.Contains(err.Error(), "fs-other") {
		t.Errorf("the error is %v", err)
	}
	if fsroot.ResultOf(err).Reason != operations.WrongFileSystem {
		t.Errorf("the reason is %v", fsroot.ResultOf(err).Reason)
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Error(diff)
	}
}

// TestDiskWithoutMarkerIsAnother where volumes are: it is not touched, and the right one is taken.
func TestDiskWithoutMarkerIsAnother(t *testing.T) {
	w := newFixture(t)
	used := fsroot.Options{FileSystemID: fsID, Used: true}
	for _, name := range []string{"an empty disk", "a disk with an empty state directory"} {
		before := w.dump()
		_, err := fsroot.Open(t.Context(), w.dir, used)
		if err == nil || fsroot.ResultOf(err).Reason != operations.WrongFileSystem || !strings.Contains(err.Error(), "write the line "+fsID) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if diff := difference(before, w.dump()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := os.MkdirAll(w.path(".efs-stunnel"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	w.open(nil).Close()
	f, err := fsroot.Open(t.Context(), w.dir, used)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestMarkerOfAnAliasIsAccepted(t *testing.T) {
	w := newFixture(t)
	w.open(nil).Close()
	f, err := fsroot.Open(t.Context(), w.dir, fsroot.Options{FileSystemID: "fs-restored", Aliases: []string{"fs-x", fsID}})
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	data, _ := os.ReadFile(w.path(".efs-stunnel/file-system-id"))
	if string(data) != fsID+"\n" {
		t.Errorf("the marker became %q", data)
	}
}

func TestInvalidFileSystemIDsAreRefused(t *testing.T) {
	for _, id := range []string{"", " fs-1", "fs-1\n", "fs\x00"} {
		if _, err := fsroot.Open(t.Context(), t.TempDir(), fsroot.Options{FileSystemID: id}); err == nil {
			t.Errorf("%q was taken", id)
		}
	}
	if _, err := fsroot.Open(t.Context(), filepath.Join(t.TempDir(), "missing"), fsroot.Options{FileSystemID: fsID}); err == nil {
		t.Error("a directory that is not there was opened")
	}
}

func TestLinkInPlaceOfTheStateDirectoryIsRefused(t *testing.T) {
	w := newFixture(t)
	w.write("/elsewhere/file", "x")
	w.link("elsewhere", "/.efs-stunnel")
	before := w.dump()
	if _, err := fsroot.Open(t.Context(), w.dir, fsroot.Options{FileSystemID: fsID}); err == nil {
		t.Error("it was followed")
	}
	if diff := difference(before, w.dump()); diff != "" {
		t.Error(diff)
	}
}

// Of two first users one writes the marker, and both go by it.
func TestConcurrentFirstUsersAgreeOnTheMarker(t *testing.T) {
	for range 50 {
		dir := t.TempDir()
		ids := []string{"fs-1", "fs-1", "fs-2", "fs-2"}
		errs := make([]error, len(ids))
		var users sync.WaitGroup
		for i, id := range ids {
			users.Go(func() {
				var f *fsroot.FileSystem
				if f, errs[i] = fsroot.Open(t.Context(), dir, fsroot.Options{FileSystemID: id}); errs[i] == nil {
					f.Close()
				}
			})
		}
		users.Wait()
		data, err := os.ReadFile(filepath.Join(dir, ".efs-stunnel/file-system-id"))
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if right := id+"\n" == string(data); right != (errs[i] == nil) {
				t.Errorf("%s got %v, the marker is %q", id, errs[i], data)
			}
		}
	}
}

func TestCheckNFS(t *testing.T) {
	err := fsroot.CheckNFS(t.TempDir())
	if err == nil || fsroot.ResultOf(err).Reason != operations.NotNFS {
		t.Errorf("a local directory: %v", err)
	}
	if err := fsroot.CheckNFS(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
}

func TestHeldLockIsWaitedForUntilTheDeadline(t *testing.T) {
	w := newFixture(t)
	first, second := w.open(nil), w.open(nil)
	defer first.Close()
	defer second.Close()
	lock, err := first.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	op := setupOf(owner("c1", "ns", 1), "/ns/data")
	result := batch.Run(ctx, second, []operations.Operation{op}, batch.Options{}).Results[0]
	if result.State != operations.NotDone || result.Reason != operations.Locked {
		t.Errorf("got %+v", result)
	}
	w.gone("/ns")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if result := batch.Run(t.Context(), second, []operations.Operation{op}, batch.Options{}).Results[0]; result.State != operations.Done {
		t.Errorf("then got %+v", result)
	}
}
