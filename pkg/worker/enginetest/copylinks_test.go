package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
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

// What is removed from a copy, and the links of a complete one, are removed as the trash is: each entry at the
// pace of the copying, until the time is over.
func TestRemovalFromACopyEndsWithTheJob(t *testing.T) {
	const files = 40
	for name, remove := range map[string]func(w *fixture) error{
		"a directory that the source no longer has": func(w *fixture) error { return os.RemoveAll(w.path(sourcePath + "/many")) },
		"the links of a complete copy": func(w *fixture) error {
			return errors.Join(os.Mkdir(w.path(sourcePath+"/too"), 0o755), eachName(files, func(name string) error {
				return os.Link(w.path(sourcePath+"/many/"+name), w.path(sourcePath+"/too/"+name))
			}))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			err := eachName(files, func(name string) error {
				w.write(sourcePath+"/many/"+name, "")
				return nil
			})
			w.cloneWith(theClone(), failAt("publish "+clonePath))
			if err := errors.Join(err, remove(w)); err != nil {
				t.Fatal(err)
			}
			f := w.open(nil)
			defer f.Close()
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			removing := false
			f.Step = func(step string) error {
				if strings.HasPrefix(step, "sweep removed") || strings.HasPrefix(step, "sweep 0") {
					removing = true
				}
				return nil
			}
			removed := 0
			f.Request = func(int) {
				if removing {
					removed++
					<-time.After(20 * time.Second)
				}
			}
			result := clone.Clone(ctx, f, theClone(), clone.Options{Workers: 1})
			if result.State != operations.NotDone || removed == 0 || removed > 4 {
				t.Errorf("%s: got %+v after %d removals in a minute", name, result, removed)
			}
			w.cloneWith(theClone(), nil) // alone: who waits for a mutex stops the clock of the test
			w.wantCopy()
		})
	}
}

func eachName(n int, do func(name string) error) (err error) {
	for i := range n {
		err = errors.Join(err, do(fmt.Sprintf("file-%d", i)))
	}
	return err
}

// A server may leave out names of a directory that changes while it is listed.
func TestExtrasAreListedAgainUntilNoneIsLeft(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.cloneWith(theClone(), failAt("publish "+clonePath))
	staged := "/.efs-stunnel/clones/" + theClone().Volume + "/copy/"
	extras := 256 + 10
	for i := range extras {
		w.write(fmt.Sprintf("%sextra-%d", staged, i), "")
	}
	result := w.cloneWith(theClone(), func(step string) error {
		if strings.HasPrefix(step, "remove extra-") && extras > 0 { // as if it had been left out
			extras--
			w.write(fmt.Sprintf("%sleft-out-%d", staged, extras), "")
		}
		return nil
	})
	if result.State != operations.Done {
		t.Fatalf("got %+v", result)
	}
	w.wantCopy()
}

// The last name that a server allows is that among the links. A run that dies after it was given away, and before the
// copy is published, leaves a file that can have no more names.
func TestFileWithAllNamesThatTheServerAllows(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.cloneWith(theClone(), failAt("publish "+clonePath)) // the links are removed before that
	f := w.open(nil)
	defer f.Close()
	f.Space = func(step string) error {
		if strings.HasPrefix(step, "note the links of ") {
			return syscall.EMLINK
		}
		return nil
	}
	if result := clone.Clone(t.Context(), f, theClone(), clone.Options{Workers: 1}); result.State != operations.Done {
		t.Errorf("got %+v", result)
	}
	w.wantCopy()
}
