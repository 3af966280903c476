package enginetest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// Whether each entry is inspected cannot be seen from outside, so this reads the source: such listings
// are as slow as the server is far.
func TestListingsDoNotInspectEachEntry(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(source, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "ReadDir" || s.Sel.Name == "Readdir" || s.Sel.Name == "WalkDir") {
				t.Errorf("%s uses %s: use names", file, s.Sel.Name)
			}
			return true
		})
	}
}

func TestNames(t *testing.T) {
	w := newFixture(t)
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	folder := &fsroot.Dir{Root: root, System: &fsroot.FileSystem{}, Path: "/"}
	if empty, err := folder.IsEmpty(); err != nil || !empty {
		t.Errorf("a new directory is empty: %v (%v)", empty, err)
	}
	var want []string
	for n := range 1000 {
		name := fmt.Sprintf("file-%04d", n)
		w.write(name, "")
		want = append(want, name)
	}
	got, err := folder.Names(t.Context())
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d names (%v), want %d", len(got), err, len(want))
	}
	if empty, err := folder.IsEmpty(); err != nil || empty {
		t.Errorf("a full directory is empty: %v (%v)", empty, err)
	}
	if err := os.RemoveAll(w.dir); err != nil {
		t.Fatal(err)
	}
	if got, err := folder.Names(t.Context()); len(got) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed holds %v (%v)", got, err)
	}
}

// NFS keeps a removed file as .nfs… while a client has it open; an administrator may leave
// anything in the ledger.
func TestForeignFilesInTheLedgerAreIgnored(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"))
	w.write(".efs-stunnel/owners/.nfs0001", "")
	w.write(".efs-stunnel/owners/ns/.nfs0002", "")
	w.write(".efs-stunnel/owners/ns/data/note", "mine")
	w.link("../../trash", ".efs-stunnel/owners/ns/link")
	w.do(setupOf(b, "/ns"), operations.Failed, operations.Nested)
	w.done(cleanupOf(a, "/ns/data"))
	w.gone("/ns/data", "/.efs-stunnel/owners/ns/data/@"+a.Volume)
	w.there("/.efs-stunnel/owners/ns/.nfs0002", "/.efs-stunnel/owners/ns/data/note", "/.efs-stunnel/owners/ns/link")
	w.done(setupOf(b, "/ns"))
}

// What something is shows when it is removed: each kind goes, links lead nowhere, and all is
// counted.
func TestSweepOfEveryKind(t *testing.T) {
	for _, workers := range []int{1, 8} {
		w := newFixture(t)
		a := owner("c1", "ns", 1)
		w.done(setupOf(a, "/ns/data"))
		w.write("/outside/sub/file", "precious")
		const count = 12 // full, sub, file, again, file, three links and a pipe, two directories, the top
		w.write("/ns/data/full/sub/file", "x")
		w.write("/ns/data/file", "x")
		w.link("../../outside", "/ns/data/link")
		w.link("../../outside/sub/file", "/ns/data/linked file")
		w.link("nowhere", "/ns/data/dangling")
		w.link("link", "/ns/data/full/again")
		for _, dir := range []string{"/ns/data/empty", "/ns/data/locked"} {
			if err := os.Mkdir(w.path(dir), 0o300); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(w.path("/ns/data/pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		w.done(cleanupOf(a, "/ns/data"))
		outside := w.dump()["outside/sub/file"]
		if swept := w.sweep(0); swept.Removed != count || swept.Volumes != 1 {
			t.Errorf("%d workers: %+v, want %d removals", workers, swept, count)
		}
		if got := w.dump()["outside/sub/file"]; got != outside {
			t.Errorf("outside is %q, want %q", got, outside)
		}
		w.wantEmptyTrash()
	}
}

// Servers answer in more than one way that a directory is not empty.
func TestFullDirectoriesAreRecognizedByAnyError(t *testing.T) {
	w := newFixture(t)
	w.write("/full/file", "x")
	w.write("/file", "x")
	w.link("full", "/link")
	folder, err := os.OpenRoot(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	b := &treewalk.Branch{Root: folder}
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"full", syscall.ENOENT, false},
		{"full", syscall.ENOTEMPTY, true},
		{"full", syscall.EEXIST, true},
		{"full", syscall.EPERM, true},
		{"full", syscall.EBUSY, true},
		{"full", syscall.EISDIR, true},
		{"file", syscall.EISDIR, false}, // it was a directory between the two tries
		{"file", syscall.EPERM, false},
		{"link", syscall.EPERM, false},
		{"gone", syscall.EPERM, false},
	} {
		if got := b.IsFull(tt.name, &fs.PathError{Op: "unlinkat", Path: tt.name, Err: tt.err}); got != tt.want {
			t.Errorf("%s after %v: %v, want %v", tt.name, tt.err, got, tt.want)
		}
	}
	if b.IsFull("full", nil) {
		t.Error("what was removed is not full")
	}
}
