package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Whatever step a run dies before, the source stays as it is, nothing is at the path or all is, and the next
// run completes the copy.
func TestCloneAfterACrashAtEveryStep(t *testing.T) {
	asRoot(t)
	prepared := func() *fixture {
		w := newFixture(t)
		w.withSource()
		return w
	}
	var steps []string
	prepared().cloneWith(theClone(), func(step string) error {
		steps = append(steps, step)
		return nil
	})
	for i, step := range steps {
		w := prepared()
		before := w.tree(sourcePath)
		if result := w.cloneWith(theClone(), crashAt(i)); result.State == operations.Done {
			t.Fatalf("it was done before step %d (%s)", i, step)
		}
		if _, err := os.Lstat(w.path(clonePath)); err == nil {
			if diff := difference(before, w.tree(clonePath)); diff != "" {
				t.Errorf("after a crash before step %d (%s), half a copy is there:\n%s", i, step, diff)
			}
		}
		w.cloned(theClone())
		w.wantCopy()
		if diff := difference(before, w.tree(sourcePath)); diff != "" {
			t.Errorf("after a crash before step %d (%s), the source has changed:\n%s", i, step, diff)
		}
		if t.Failed() {
			t.Fatalf("after a crash before step %d (%s)", i, step)
		}
	}
	t.Logf("%d steps", len(steps))
}

// The answer to the rename that publishes the copy is lost: it may be there, and must not be made again.
func TestCloneWhoseAnswerIsLost(t *testing.T) {
	for _, answer := range []error{syscall.EIO, syscall.ENOENT} {
		w := newFixture(t)
		w.withSource()
		f := w.open(nil)
		defer f.Close()
		f.Lost = func(step string) error {
			if step == "publish "+clonePath {
				return answer
			}
			return nil
		}
		if result := clone.Clone(t.Context(), f, theClone(), clone.Options{}); result.State != operations.Failed {
			t.Errorf("got %+v", result)
		}
		w.cloned(theClone())
		w.wantCopy()
	}
}

func TestCloneGoesOnWhereItStopped(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	for i := range 20 {
		w.write(fmt.Sprintf("%s/file-%d", sourcePath, i), "x")
	}
	copied := 0
	result := w.cloneWith(theClone(), func(step string) error {
		if strings.HasPrefix(step, "copy file-") {
			if copied++; copied == 11 {
				return errCrash
			}
		}
		return nil
	})
	if result.State != operations.NotDone || result.Reason != operations.Stopped {
		t.Fatalf("got %+v", result)
	}
	staged := filepath.Join(".efs-stunnel/clones", theClone().Volume, "copy")
	found, err := filepath.Glob(w.path(staged + "/file-*"))
	if err != nil || len(found) != 10 {
		t.Fatalf("%d files are copied (%v)", len(found), err)
	}
	inodes := map[string]uint64{}
	for _, p := range found {
		name := filepath.Base(p)
		if w.modified(filepath.Join(staged, name)).Equal(w.modified(filepath.Join(sourcePath, name))) { // or it was still being copied
			inodes[name] = w.inode(filepath.Join(staged, name))
		}
	}
	// Meanwhile the source changes.
	changed, removed := filepath.Base(found[0]), filepath.Base(found[1])
	w.write(sourcePath+"/"+changed, "changed")
	if err := os.Remove(w.path(sourcePath + "/" + removed)); err != nil {
		t.Fatal(err)
	}
	w.cloned(theClone())
	w.wantCopy()
	for name, inode := range inodes {
		if name != removed && name != changed && w.inode(clonePath+"/"+name) != inode {
			t.Errorf("%s was copied again", name)
		}
	}
}

func (w *fixture) modified(p string) time.Time {
	w.t.Helper()
	info, err := os.Stat(w.path(p))
	if err != nil {
		w.t.Fatal(err)
	}
	return info.ModTime()
}

func (w *fixture) inode(p string) uint64 {
	w.t.Helper()
	info, err := os.Lstat(w.path(p))
	if err != nil {
		w.t.Fatal(err)
	}
	return fsroot.StatOf(info).Ino
}

// What was of another kind in an earlier run is replaced.
func TestCloneReplacesWhatHasChangedItsKind(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.cloneWith(theClone(), failAt("publish "+clonePath))
	top := w.path(sourcePath)
	for _, err := range []error{
		os.RemoveAll(top + "/sub"), os.WriteFile(top+"/sub", []byte("a file now"), 0o600),
		os.Remove(top + "/b"), os.Mkdir(top+"/b", 0o755), os.WriteFile(top+"/b/file", nil, 0o600),
		os.Remove(top + "/out"), os.Symlink("elsewhere", top+"/out"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.cloned(theClone())
	w.wantCopy()
}

func TestSourceIsRemovedWhileItIsCopied(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneWith(theClone(), func(step string) error {
		if step == "copy b" {
			w.done(cleanupOf(owner("c1", "ns", 1), sourcePath))
			w.sweep(time.Hour)
		}
		return nil
	})
	if result.State != operations.Failed || result.Reason != operations.SourceGone {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
}

func TestSourceIsReplacedWhileItIsCopied(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneWith(theClone(), func(step string) error {
		if step != "copy b" {
			return nil
		}
		return errors.Join(os.Rename(w.path(sourcePath), w.path("/ns/old")), os.Mkdir(w.path(sourcePath), 0o755))
	})
	if result.State != operations.Failed || result.Reason != operations.Changed {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
}

// A tenant replaces directories and files by links to what it must not read, whenever the copy stops to look.
func TestCloneFollowsNoLink(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.write("/secret/c", "secret")
	w.write("/secret/deeper/d", "secret")
	attack := func(step string) error {
		for _, name := range []string{"sub", "b", "a"} {
			p := w.path(sourcePath + "/" + name)
			if strings.Contains(step, "out") || strings.Contains(step, "copy") {
				_ = os.RemoveAll(p)
				_ = os.Symlink(w.path("/secret"), p)
			}
		}
		return nil
	}
	result := w.cloneWith(theClone(), attack)
	if result.State != operations.Done {
		t.Fatalf("got %+v", result)
	}
	for name, line := range w.tree(clonePath) {
		if strings.Contains(line, `"secret"`) {
			t.Errorf("%s has what is outside of the source: %s", name, line)
		}
	}
}

// A file that is written to all the time is in the copy as it was at some time.
func TestFileThatChangesAllTheTime(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	file, err := os.Create(w.path(sourcePath + "/log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for ; ctx.Err() == nil; <-time.After(time.Millisecond) {
			if _, err := file.WriteString("line\n"); err != nil {
				return
			}
		}
	})
	w.cloned(theClone())
	stop()
	writing.Wait()
	whole, err := os.ReadFile(w.path(sourcePath + "/log"))
	part, partErr := os.ReadFile(w.path(clonePath + "/log"))
	if err := errors.Join(err, partErr, file.Close()); err != nil || !bytes.HasPrefix(whole, part) {
		t.Errorf("the copy of %d bytes is no part of the file, which has %d (%v)", len(part), len(whole), err)
	}
}

func TestCloneOfTooDeepATree(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.nest(sourcePath, 1024+1)
	result := w.cloneWith(theClone(), nil)
	if result.State != operations.Failed || result.Reason != operations.TooDeep {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
}

// nest makes directories inside each other, deeper than a path can say.
func (w *fixture) nest(top string, depth int) {
	w.t.Helper()
	at, err := os.Open(w.path(top))
	for ; err == nil && depth > 0; depth-- {
		if err = unix.Mkdirat(int(at.Fd()), "d", 0o755); err == nil {
			var below *os.File
			below, err = fsroot.OpenAt(at, "d", unix.O_DIRECTORY, 0)
			_ = at.Close()
			at = below
		}
	}
	if err := errors.Join(err, at.Close()); err != nil {
		w.t.Fatal(err)
	}
}

func TestCloneWithoutSpaceGoesOnLater(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	f := w.open(nil)
	defer f.Close()
	f.Space = func(step string) error {
		if strings.HasPrefix(step, "copy sub") {
			return noSpace(step)
		}
		return nil
	}
	if result := clone.Clone(t.Context(), f, theClone(), clone.Options{Workers: 1}); result.Reason != operations.NoSpace {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
	w.cloned(theClone())
	w.wantCopy()
}

// Two runs never copy at once: the second one waits for the first.
func TestSecondRunWaits(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	ended := false
	var second operations.Result
	first := w.cloneWith(theClone(), func(step string) error {
		if step == "copy b" {
			f := w.open(nil)
			defer f.Close()
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			second, ended = clone.Clone(ctx, f, theClone(), clone.Options{}), true
			w.do(abandoned(theClone()), operations.Failed, operations.Locked)
		}
		return nil
	})
	if first.State != operations.Done || !ended || second.Reason != operations.Locked {
		t.Errorf("the first: %+v\nthe second: %+v", first, second)
	}
	w.wantCopy()
}

// Batches of other claims go on while a volume is copied.
func TestBatchesGoOnBesideAClone(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneWith(theClone(), func(step string) error {
		if step == "copy b" {
			w.done(setupOf(owner("c1", "ns", 7), "/ns/seven"))
			w.done(cleanupOf(owner("c1", "ns", 7), "/ns/seven"))
		}
		return nil
	})
	if result.State != operations.Done {
		t.Errorf("got %+v", result)
	}
	w.wantCopy()
}

func TestAbandonedClone(t *testing.T) {
	staged := "/.efs-stunnel/clones/" + theClone().Volume
	tests := map[string]func(w *fixture){
		"before it began": func(*fixture) {},
		"in the middle":   func(w *fixture) { w.cloneWith(theClone(), failAt("copy sub/c")) },
		"at its end":      func(w *fixture) { w.cloneWith(theClone(), failAt("publish "+clonePath)) },
		"published":       func(w *fixture) { w.cloned(theClone()) },
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			before := w.tree(sourcePath)
			prepare(w)
			w.done(abandoned(theClone()))
			w.gone(staged, clonePath, "/.efs-stunnel/owners"+clonePath)
			w.sweep(time.Hour)
			left, err := os.ReadDir(w.path("/.efs-stunnel/trash/" + staging))
			if err != nil || len(left) > 0 {
				t.Errorf("the sweep has left %v (%v)", left, err)
			}
			w.done(abandoned(theClone())) // repeated
			if diff := difference(before, w.tree(sourcePath)); diff != "" {
				t.Errorf("the source has changed:\n%s", diff)
			}
			w.cloned(theClone()) // begun anew
			w.wantCopy()
		})
	}
}

// A copy that nothing goes on with is swept, much later.
func TestForgottenCopyIsSwept(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.now = time.Now()
	w.cloneWith(theClone(), failAt("copy sub/c"))
	staged := "/.efs-stunnel/clones/" + theClone().Volume
	w.sweep(29 * 24 * time.Hour)
	w.there(staged)
	w.sweep(31 * 24 * time.Hour)
	w.gone(staged)
}

func TestCloneReportsItsProgress(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	f := w.open(nil)
	defer f.Close()
	var progress func() operations.CloneProgress
	result := clone.Clone(t.Context(), f, theClone(), clone.Options{Started: func(p func() operations.CloneProgress) { progress = p }})
	if result.State != operations.Done {
		t.Fatalf("got %+v", result)
	}
	want := operations.CloneProgress{Files: 9, Found: 9, Bytes: int64(4 * len("content of a"))}
	if got := progress(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if result.Message != "copied 9 files of claim claim-1" {
		t.Errorf("message %q", result.Message)
	}
}
