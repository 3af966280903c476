package directories

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file with several names that changes after its first copy, in this run or before the next one, is still one
// file with those names.
func TestLinkedFileThatChanges(t *testing.T) {
	for name, ends := range map[string]error{"while it is copied": nil, "before the next run": errCrash} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			w.hardLink(sourcePath+"/a", sourcePath+"/sub/a-three")
			changed := false
			w.cloneWith(theClone(), func(step string) error {
				if changed || !strings.HasPrefix(step, "link ") { // the second name
					return nil
				}
				changed = true
				w.write(sourcePath+"/a", "another content of a")
				return ends
			})
			if !changed {
				t.Fatal("no file was linked")
			}
			if ends != nil {
				w.cloned(theClone())
			}
			w.wantCopy()
		})
	}
}

// Links that are removed when a copy is complete may be more than are listed at once.
func TestManyLinksAreRemoved(t *testing.T) {
	dir := t.TempDir()
	for n := range 2*namesAtOnce + 1 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := removeAll(parent, filepath.Base(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
}
