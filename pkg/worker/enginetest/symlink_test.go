package enginetest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// victims are what a planted link leads to: another tenant's volume, our own state, and what is
// outside of the file system.
func (w *fixture) victims(outside string) map[string]string {
	w.t.Helper()
	found := map[string]string{}
	for p, line := range w.dump() {
		ours := strings.HasPrefix(p, ".efs-stunnel/owners/victim") || strings.HasPrefix(p, ".efs-stunnel/trash/pvc-c1-victim")
		if ours || p == "victim" || strings.HasPrefix(p, "victim/") {
			found[p] = line
		}
	}
	o := fixture{t: w.t, dir: outside}
	for p, line := range o.dump() {
		found["outside/"+p] = line
	}
	return found
}

// intruder exchanges a directory for a link at one step of an operation.
type intruder struct {
	w      *fixture
	at     string // the directory
	target string
	step   int // when
	count  int
}

func (i *intruder) hook(string) error {
	i.count++
	if i.count-1 != i.step {
		return nil
	}
	at := i.w.path(i.at)
	if _, err := os.Lstat(at); err == nil {
		if err := os.Rename(at, at+".moved"); err != nil {
			return err
		}
	}
	err := os.Symlink(i.target, at)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing to plant it in yet
	}
	return err
}

// Whatever directory of a path becomes a link, wherever it leads, and at whatever step: nothing
// behind it changes.
func TestLinksPlantedDuringAnOperation(t *testing.T) {
	a, gone := owner("c1", "ns", 1), owner("c1", "ns", 2)
	victim := owner("c1", "victim", 1)
	ops := map[string]operations.Operation{
		"setup":   setupOf(owner("c1", "ns", 3), "/ns/deep/new"),
		"again":   setupOf(a, "/ns/deep/data"),
		"cleanup": cleanupOf(a, "/ns/deep/data"),
		"release": releaseOf(a, "/ns/deep/data"),
		"restore": restoreOf(owner("c1", "ns", 4), "/ns/deep/back", gone.ClaimUID),
	}
	outside := t.TempDir()
	if err := os.MkdirAll(filepath.Join(outside, "deep/data/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	targets := map[string]string{
		"/ns":           "victim",
		"/ns/deep":      "../victim/deep",
		"/ns/deep/data": "../../victim/deep/data",
		"/ns/deep/new":  "../../victim/deep",
		"/ns/deep/back": "../../victim/deep/new",
	}
	prepared := newFixture(t)
	prepared.done(setupOf(a, "/ns/deep/data"), setupOf(gone, "/ns/gone"), setupOf(victim, "/victim/deep/data"))
	prepared.write("/victim/deep/data/sub/file", "precious")
	prepared.done(cleanupOf(gone, "/ns/gone"))
	for name, op := range ops {
		for at, relative := range targets {
			for _, target := range []string{relative, outside} {
				t.Run(fmt.Sprintf("%s of %s at %s", name, target, at), func(t *testing.T) {
					t.Parallel()
					for step, reached := 0, true; reached; step++ {
						w := prepared.clone()
						before := w.victims(outside)
						link := target
						if link == outside && at != "/ns" {
							link = filepath.Join(outside, "deep")
						}
						i := &intruder{w: w, at: at, target: link, step: step}
						f := w.open(i.hook)
						batch.Run(t.Context(), f, []operations.Operation{op}, batch.Options{})
						f.Close()
						reached = i.count > step
						w.sweep(0)
						if after := w.victims(outside); !maps.Equal(before, after) {
							t.Errorf("at step %d:\n%s", step, difference(before, after))
						}
					}
				})
			}
		}
	}
}

// A tenant's links inside its own volume go with it, and lead nowhere.
func TestLinksInsideAVolumeAreRemovedNotFollowed(t *testing.T) {
	w := newFixture(t)
	a, victim := owner("c1", "ns", 1), owner("c1", "victim", 1)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.done(setupOf(a, "/ns/data"), setupOf(victim, "/victim/data"))
	w.write("/victim/data/file", "precious")
	for name, target := range map[string]string{
		"relative": "../../victim/data", "absolute": outside, "state": "../../.efs-stunnel",
		"up": "..", "root": "/", "self": "self", "dangling": "nothing", "dir/up": "../../../victim",
	} {
		w.write("/ns/data/dir/file", "x")
		w.link(target, "/ns/data/"+name)
	}
	before := w.victims(outside)
	w.done(cleanupOf(a, "/ns/data"))
	w.sweep(0)
	w.gone("/ns/data", "/.efs-stunnel/trash/"+a.Volume)
	if after := w.victims(outside); !maps.Equal(before, after) {
		t.Error(difference(before, after))
	}
	w.wantEmptyTrash()
}

func (w *fixture) wantEmptyTrash() {
	w.t.Helper()
	for _, dir := range []string{".efs-stunnel/trash", ".efs-stunnel/trash/" + staging, ".efs-stunnel/tmp"} {
		entries, err := os.ReadDir(w.path(dir))
		if fsroot.IgnoreMissing(err) != nil {
			w.t.Fatal(err)
		}
		for _, entry := range entries {
			if entry.Name() != staging {
				w.t.Errorf("%s is left in %s", entry.Name(), dir)
			}
		}
	}
}

// A tenant that still has its volume mounted can exchange directories while they are swept.
func TestLinksPlantedDuringASweep(t *testing.T) {
	for step, reached := int64(0), true; reached; step++ {
		w := newFixture(t)
		a, victim := owner("c1", "ns", 1), owner("c1", "victim", 1)
		outside := t.TempDir()
		w.done(setupOf(a, "/ns/data"), setupOf(victim, "/victim/data"))
		w.write("/victim/data/sub/file", "precious")
		w.write("/ns/data/one/two/file", "x")
		w.done(cleanupOf(a, "/ns/data"))
		before := w.victims(outside)
		var count atomic.Int64 // two workers
		f := w.open(func(string) error {
			if count.Add(1)-1 == step {
				w.plantEverywhere(".efs-stunnel/trash", outside)
			}
			return nil
		})
		_, err := trash.Sweep(t.Context(), f, treewalk.Options{Workers: 2})
		f.Close()
		if err != nil {
			t.Logf("at step %d: %v", step, err)
		}
		reached = count.Load() > step
		w.sweep(0)
		if after := w.victims(outside); !maps.Equal(before, after) {
			t.Errorf("at step %d:\n%s", step, difference(before, after))
		}
		w.wantEmptyTrash()
	}
}

// plantEverywhere makes links of all directories named one or two, as a tenant could.
func (w *fixture) plantEverywhere(below, outside string) {
	for _, link := range []struct{ name, target string }{{"two", outside}, {"one", "../../../../../victim/data"}} {
		err := filepath.WalkDir(w.path(below), func(p string, d os.DirEntry, err error) error {
			if err != nil || d.Name() != link.name || !d.IsDir() {
				return nil //nolint:nilerr // the sweep was faster
			}
			if err := os.Rename(p, p+".moved"); err != nil {
				return nil //nolint:nilerr // likewise
			}
			return os.Symlink(link.target, p)
		})
		if err != nil {
			w.t.Error(err)
		}
	}
}
