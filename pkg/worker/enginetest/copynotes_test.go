package enginetest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// stopAt stops a run before the n-th step of a name.
func stopAt(name string, n int) func(string) error {
	return func(step string) error {
		if step == name {
			if n--; n == 0 {
				return errCrash
			}
		}
		return nil
	}
}

// Sizes of the package clone.
const (
	bufferBytes  = 128 << 10
	flushedBytes = 8 << 20
	notedBytes   = 4 * flushedBytes
)

const largeBytes = notedBytes + flushedBytes

// putLarge writes a file that needs several Jobs.
func (w *fixture) putLarge(p, letter string) {
	w.t.Helper()
	if err := os.WriteFile(w.path(p), bytes.Repeat([]byte(letter), largeBytes), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// wantSame compares files that are too large for wantCopy.
func (w *fixture) wantSame(name string) {
	w.t.Helper()
	want, err := os.ReadFile(w.path(sourcePath + "/" + name))
	got, gotErr := os.ReadFile(w.path(clonePath + "/" + name))
	if err := errors.Join(err, gotErr); err != nil || !bytes.Equal(want, got) {
		w.t.Errorf("%s has %d bytes in its copy, which differ from %d (%v)", name, len(got), len(want), err)
	}
}

// A large file is copied in as many Jobs as it needs, whether it has one name or several.
func TestLargeFileGoesOnWhereItStopped(t *testing.T) {
	for name, names := range map[string][]string{"with one name": {"big"}, "with several names": {"big", "big-too", "big-three"}} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			w.putLarge(sourcePath+"/big", "x")
			for _, name := range names[1:] {
				w.hardLink(sourcePath+"/big", sourcePath+"/"+name)
			}
			flushes := 0
			w.cloneWith(theClone(), func(step string) error {
				if strings.HasPrefix(step, "flush big") {
					if flushes++; flushes == 4 {
						return errCrash
					}
				}
				return nil
			})
			f := w.open(nil)
			defer f.Close()
			var progress func() operations.CloneProgress
			result := clone.Clone(t.Context(), f, theClone(), clone.Options{Started: func(p func() operations.CloneProgress) { progress = p }})
			if result.State != operations.Done {
				t.Fatalf("got %+v", result)
			}
			if again := progress().Bytes; again > largeBytes-2*flushedBytes {
				t.Errorf("the second run has copied %d bytes of %d", again, largeBytes)
			}
			for _, name := range names {
				w.wantSame(name)
				if w.inode(clonePath+"/"+name) != w.inode(clonePath+"/big") {
					t.Errorf("%s is another file in the copy", name)
				}
			}
		})
	}
}

// A large file that has changed between two runs is begun anew.
func TestLargeFileThatChangesBetweenRunsIsCopiedAnew(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	at := time.Unix(1, 0)
	for _, letter := range []string{"a", "b"} {
		w.putLarge(sourcePath+"/big", letter)
		if err := os.Chtimes(w.path(sourcePath+"/big"), at, at); err != nil {
			t.Fatal(err)
		}
		if letter == "a" {
			w.cloneWith(theClone(), stopAt("flush big", 4))
		}
	}
	w.cloned(theClone())
	w.wantSame("big")
}

// A file is replaced by one of the same size and with the same time, as rsync and tar do, after its copy was made.
func TestChangeThatLooksTheSameIsCopied(t *testing.T) {
	w := newFixture(t)
	w.done(setupOf(owner("c1", "ns", 1), sourcePath))
	w.write(sourcePath+"/large", strings.Repeat("x", 2*bufferBytes))
	at := time.Unix(1, 0)
	put := func(p, content string) {
		t.Helper()
		w.write(p, content)
		if err := os.Chtimes(w.path(p), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"/config", "/linked"} {
		put(sourcePath+name, "replicas: 3")
	}
	w.hardLink(sourcePath+"/linked", sourcePath+"/linked-too")
	linksAreThere := failAt("sweep /.efs-stunnel/clones/" + theClone().Volume + "/links")
	w.cloneWith(theClone(), linksAreThere)
	for _, name := range []string{"/config", "/linked"} {
		put(sourcePath+name, "replicas: 4")
	}
	w.cloneWith(theClone(), linksAreThere)
	staged := "/.efs-stunnel/clones/" + theClone().Volume + "/copy"
	before := []uint64{w.inode(staged + "/config"), w.inode(staged + "/large"), w.inode(staged + "/linked")}
	w.cloned(theClone())
	w.wantCopy()
	for i, name := range []string{"/config", "/large", "/linked"} {
		if w.inode(clonePath+name) != before[i] {
			t.Errorf("%s has not changed, and was copied again", name)
		}
	}
}

// What an earlier run has copied in part is removed from the source just before its directory is listed, and so
// is not found by its name.
func TestPartOfAFileThatIsGoneIsNotInTheCopy(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.now = time.Now().Add(-time.Hour)
	staged := "/.efs-stunnel/clones/" + theClone().Volume + "/copy/"
	w.write(sourcePath+"/gone/file", "content")
	w.cloneWith(theClone(), failAt("publish "+clonePath))
	w.write(staged+"b", "cont")
	w.write(staged+"gone/file", "cont")
	w.now = time.Now().Add(time.Hour)
	result := w.cloneFrom(func(request string) error {
		if request == "list ." {
			return errors.Join(os.RemoveAll(w.path(sourcePath+"/gone")), fsroot.IgnoreMissing(os.Remove(w.path(sourcePath+"/b"))))
		}
		return nil
	})
	if result.State != operations.Done {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath+"/gone", clonePath+"/b")
	w.wantCopyBut(".")
}

// A Job has little memory, and what was written is in it until it is flushed.
func TestWhatIsNotFlushedIsBounded(t *testing.T) {
	w := newFixture(t)
	w.done(setupOf(owner("c1", "ns", 1), sourcePath))
	w.write(sourcePath+"/big", strings.Repeat("x", 2*flushedBytes))
	f := w.open(nil)
	defer f.Close()
	var progress func() operations.CloneProgress
	var flushed int64
	f.Step = func(step string) error {
		if step == "flush big" {
			if bytes := progress().Bytes; bytes-flushed > flushedBytes {
				t.Errorf("%d bytes were not flushed", bytes-flushed)
			}
			flushed = progress().Bytes
		}
		return nil
	}
	clone.Clone(t.Context(), f, theClone(), clone.Options{Workers: 1, Started: func(p func() operations.CloneProgress) { progress = p }})
	if flushed != 2*flushedBytes {
		t.Errorf("%d bytes were flushed", flushed)
	}
}
