package enginetest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// What cannot be removed does not keep the rest, and is in the error.
func TestSweepGoesOnPastErrors(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	a := owner("c1", "ns", 1)
	w.done(setupOf(a, "/ns/data"))
	plant(t, w.path("/ns/data"), 20, 5)
	w.write("/ns/data/3/stuck/mount/file", "x")
	w.done(cleanupOf(a, "/ns/data"))
	stuck := w.path("/.efs-stunnel/trash/" + a.Volume + "/3/stuck/mount")
	if err := syscall.Mount("tmpfs", stuck, "tmpfs", 0, ""); err != nil {
		t.Skip("mounting needs more rights: ", err)
	}
	f := w.open(nil)
	defer f.Close()
	_, err := trash.Sweep(t.Context(), f, treewalk.Options{})
	found, globErr := filepath.Glob(w.path("/.efs-stunnel/trash/@@sweeping/*/*/*/*"))
	if globErr != nil || len(found) != 1 {
		t.Errorf("left are %v (%v)", found, globErr)
	}
	for _, p := range found {
		if err := syscall.Unmount(p, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "mount") {
		t.Errorf("the error is %v", err)
	}
	if _, err := trash.Sweep(t.Context(), f, treewalk.Options{}); err != nil {
		t.Error(err)
	}
	w.wantEmptyTrash()
}

// On a file system that is really full, volumes are deleted and swept.
func TestFullFileSystemIsEmptied(t *testing.T) {
	asRoot(t)
	w := newFixture(t)
	if err := syscall.Mount("tmpfs", w.dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("mounting needs more rights: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(w.dir, 0); err != nil {
			t.Error(err)
		}
	})
	a := owner("c1", "ns", 1)
	w.sweep(0) // makes what a sweep needs, as the first one of an installation
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "")
	fill := func() error {
		file, err := os.OpenFile(w.path("/ns/data/file"), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for err == nil {
			_, err = file.Write(make([]byte, 4096))
		}
		return err
	}
	if err := fill(); !fsroot.IsNoSpace(err) {
		t.Fatal(err)
	}
	w.do(setupOf(owner("c1", "ns", 2), "/ns/more"), operations.Failed, operations.NoSpace)
	w.done(cleanupOf(a, "/ns/data"))
	w.sweep(0)
	w.wantEmptyTrash()
	w.done(setupOf(owner("c1", "ns", 2), "/ns/more"))
}
