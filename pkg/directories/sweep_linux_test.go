package directories

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What cannot be removed does not keep the rest, and is told.
func TestSweepGoesOnPastTrouble(t *testing.T) {
	asRoot(t)
	w := newWorld(t)
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
	_, err := f.Sweep(t.Context(), SweepOptions{Now: w.now})
	found, globErr := filepath.Glob(w.path("/.efs-stunnel/trash/" + sweepingName + "/*/*/*/*"))
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
	if _, err := f.Sweep(t.Context(), SweepOptions{Now: w.now}); err != nil {
		t.Error(err)
	}
	w.wantEmptyTrash()
}
