package enginetest

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
)

// cloneFrom runs a clone of a server that answers for a file or a directory of the source with an error, as often
// as answer gives one.
func (w *fixture) cloneFrom(answer func(request string) error) operations.Result {
	w.t.Helper()
	f := w.open(nil)
	defer f.Close()
	f.Source = answer
	return clone.Clone(w.t.Context(), f, theClone(), clone.Options{Workers: 1})
}

// once is do at the first request of a name; its answer is that of a server which has removed a file or a
// directory that another client had open.
func once(name string, do func() error) func(string) error {
	done := false
	return func(request string) error {
		if done || request != name {
			return nil
		}
		done = true
		return errors.Join(do(), syscall.ESTALE)
	}
}

// swap puts another entry in the place of one, with a rename as programs do that never want to be seen without.
func (w *fixture) swap(p string, create func(p string)) error {
	create(p + ".new")
	return errors.Join(os.Rename(w.path(p), w.path(p+".old")), os.Rename(w.path(p+".new"), w.path(p)), os.RemoveAll(w.path(p+".old")))
}

func TestWhatIsReplacedWhileItIsCopiedIsCopiedAnew(t *testing.T) {
	large := strings.Repeat("large ", bufferBytes)
	content := func(w *fixture) func(p string) { return func(p string) { w.write(p, large) } }
	sub := func(w *fixture) func(p string) {
		return func(p string) {
			w.write(p+"/c", "another content")
			w.write(p+"/more/e", "content of e")
		}
	}
	tests := map[string]struct {
		source func(w *fixture) func(string) error
		step   string
		do     func(w *fixture) error
	}{
		"a file while it is read": {source: func(w *fixture) func(string) error {
			reads := 0
			swap := once("read b", func() error { return w.swap(sourcePath+"/b", content(w)) })
			return func(request string) error {
				if request != "read b" {
					return nil
				}
				if reads++; reads < 3 {
					return nil
				}
				return swap(request)
			}
		}},
		"a file before it is opened": {step: "copy b", do: func(w *fixture) error { return w.swap(sourcePath+"/b", content(w)) }},
		"a file by a link":           {step: "copy b", do: func(w *fixture) error { return w.swap(sourcePath+"/b", func(p string) { w.link("a", p) }) }},
		"a file by a directory":      {step: "copy b", do: func(w *fixture) error { return w.swap(sourcePath+"/b", sub(w)) }},
		"a link by a file":           {step: "copy out", do: func(w *fixture) error { return w.swap(sourcePath+"/out", content(w)) }},
		"a directory while it is listed": {source: func(w *fixture) func(string) error {
			return once("list sub", func() error { return w.swap(sourcePath+"/sub", sub(w)) })
		}},
		"a directory while its files are copied": {step: "copy sub/c", do: func(w *fixture) error { return w.swap(sourcePath+"/sub", sub(w)) }},
		"a directory after its files are copied": {step: "complete sub", do: func(w *fixture) error { return w.swap(sourcePath+"/sub", sub(w)) }},
		"a directory by a file":                  {step: "copy sub/c", do: func(w *fixture) error { return w.swap(sourcePath+"/sub", content(w)) }},
		"a directory above": {step: "copy sub/deeper/d", do: func(w *fixture) error {
			return w.swap(sourcePath+"/sub", func(p string) { w.write(p+"/deeper/d", "another content of d") })
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			w.write(sourcePath+"/b", large)
			f := w.open(nil)
			defer f.Close()
			if tt.source != nil {
				f.Source = tt.source(w)
			}
			done := tt.step == ""
			f.Step = func(step string) error {
				if done || step != tt.step {
					return nil
				}
				done = true
				return tt.do(w)
			}
			result := clone.Clone(t.Context(), f, theClone(), clone.Options{Workers: 1})
			if result.State != operations.Done || strings.Contains(result.Message, ";") || !done {
				t.Errorf("got %+v", result)
			}
			w.wantCopyBut(".")
		})
	}
}

// wantCopyBut is wantCopy without some directories themselves, which had another time when the copy began.
func (w *fixture) wantCopyBut(directories ...string) {
	w.t.Helper()
	source, copied := w.tree(sourcePath), w.tree(clonePath)
	for _, name := range directories {
		delete(source, name)
		delete(copied, name)
	}
	if diff := difference(source, copied); diff != "" {
		w.t.Errorf("the copy is not its source:\n%s", diff)
	}
}

// What is replaced whenever it is copied is not in the copy, and the event says so.
func TestWhatIsReplacedAllTheTimeIsLeftOutAndNamed(t *testing.T) {
	tests := map[string]struct{ name, changed string }{
		"read b":            {"b", "b"},
		"list sub":          {"sub", "sub/c"},
		"read sub/deeper/d": {"sub/deeper/d", "sub/deeper/d"},
	}
	for request, tt := range tests {
		name := tt.name
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.withSource()
			w.cloneWith(theClone(), failAt("publish "+clonePath)) // which has copied it
			w.write(sourcePath+"/"+tt.changed, "changed content")
			result := w.cloneFrom(func(r string) error {
				if r == request {
					return syscall.ESTALE
				}
				return nil
			})
			if result.State != operations.Done || !strings.Contains(result.Message, `1 entries were left out, which were replaced whenever they were copied: "`+name+`"`) {
				t.Errorf("got %+v", result)
			}
			w.gone(clonePath + "/" + name)
			w.there(clonePath + "/a")
		})
	}
}

func TestFileThatIsRemovedIsNotInTheCopy(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.write("/.efs-stunnel/clones/"+theClone().Volume+"/copy/b", "cont")
	result := w.cloneFrom(once("read b", func() error { return os.Remove(w.path(sourcePath + "/b")) }))
	if result.State != operations.Done || strings.Contains(result.Message, ";") {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath + "/b")
	w.wantCopyBut(".")
}

// An error that says of the source that something is gone says of the copy that something is wrong.
func TestErrorOfTheCopyEndsTheRun(t *testing.T) {
	for _, answer := range []error{syscall.ENOENT, syscall.ESTALE} {
		w := newFixture(t)
		w.withSource()
		f := w.open(nil)
		defer f.Close()
		f.Space = func(step string) error {
			if step == "copy b" {
				return answer
			}
			return nil
		}
		if result := clone.Clone(t.Context(), f, theClone(), clone.Options{Workers: 1}); result.State != operations.Failed {
			t.Errorf("got %+v", result)
		}
		w.gone(clonePath)
	}
}

// The source's own directory is compared with the ledger's when the copy is published.
func TestSourceThatIsNotListedToItsEndIsNotPublished(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	result := w.cloneFrom(once("list .", func() error { return nil }))
	if result.State != operations.Failed || result.Reason != operations.Changed {
		t.Errorf("got %+v", result)
	}
	w.gone(clonePath)
	w.cloned(theClone())
	w.wantCopy()
}

// A file with several names has changed, is copied again into its copy, and is gone before that is done.
func TestLinkedFileThatIsReplacedIsNotPublishedInPart(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.cloneWith(theClone(), failAt("sweep /.efs-stunnel/clones/"+theClone().Volume+"/links"))
	w.write(sourcePath+"/a", "changed content of a")
	replace := func(name string) error { return w.swap(sourcePath+"/"+name, func(p string) { w.write(p, name) }) }
	both := func() error { return errors.Join(replace("a"), replace("sub/deeper/a-too")) }
	result := w.cloneFrom(once("read a", both))
	if result.State == operations.Done {
		result = w.cloneFrom(once("read sub/deeper/a-too", both))
	}
	if result.State != operations.Failed || result.Reason != operations.Changed {
		t.Errorf("got %+v", result)
	}
	w.cloned(theClone())
	w.wantCopy()
}

// Another run has the lock open, and waits for it: then an NFS client renames what is removed.
func TestPublishedCloneIsDoneWhateverIsLeftInItsPlace(t *testing.T) {
	place := ".efs-stunnel/clones/" + theClone().Volume
	for _, stray := range []string{"/links/.nfs00000000009f248a00000001", "/.nfs00000000009f248a00000001"} {
		for _, lost := range []error{nil, errCrash} { // or the run dies then, and the next one comes to it
			w := newFixture(t)
			w.withSource()
			result := w.cloneWith(theClone(), func(step string) error {
				switch {
				case strings.HasPrefix(step, "publish "):
					w.write(place+stray, "")
				case step == "remove /"+place+"/links":
					return lost
				}
				return nil
			})
			if lost != nil {
				result = w.cloneWith(theClone(), nil)
			}
			if result.State != operations.Done || strings.Contains(result.Message, ";") {
				t.Errorf("with %s: got %+v", stray, result)
			}
			w.wantCopy()
			w.sweep(time.Hour)
			if left, err := os.ReadDir(w.path("/.efs-stunnel/trash/" + staging)); err != nil || len(left) > 0 {
				t.Errorf("the sweep has left %v (%v)", left, err)
			}
		}
	}
}

// Such files are gone, as far as anyone but the program is concerned that has them open.
func TestFilesThatAreRemovedWhileOpenAreLeftOut(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	const removed = "/sub/.nfs00000000009f248a00000001"
	w.write(sourcePath+"/sub/.nfs-notes", "a file of a user")
	w.write(sourcePath+removed, "removed")
	w.write("/.efs-stunnel/clones/"+theClone().Volume+"/copy"+removed, "by the version before")
	w.cloned(theClone())
	w.gone(clonePath + removed)
	w.there(clonePath + "/sub/.nfs-notes")
}

// TestCopyIsNotWhatIsAtItsPath: a run died between its entry and the rename, and another claim was given the path.
func TestCopyIsNotWhatIsAtItsPath(t *testing.T) {
	w := newFixture(t)
	w.withSource()
	w.cloneWith(theClone(), failAt("publish "+clonePath))
	w.done(setupOf(owner("c1", "ns", 3), clonePath))
	if result := w.cloneWith(theClone(), nil); result.State != operations.Failed || result.Reason != operations.PathTaken {
		t.Errorf("got %+v", result)
	}
	w.there("/.efs-stunnel/clones/" + theClone().Volume + "/copy/a")
}
