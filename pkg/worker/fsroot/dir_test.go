package fsroot

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
	"testing"

	"gnuthought.com/efs-stunnel/test/support/memorytest"
)

// Whether each entry is inspected cannot be seen from outside, so this reads the source: such listings
// are as slow as the server is far.
func TestListingsDoNotInspectEachEntry(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
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
	dir := memorytest.Folder(t)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	folder := &Dir{Root: root, System: &FileSystem{}, Path: "/"}
	if empty, err := folder.IsEmpty(); err != nil || !empty {
		t.Errorf("a new directory is empty: %v (%v)", empty, err)
	}
	var want []string
	for n := range 1000 {
		name := fmt.Sprintf("file-%04d", n)
		if err := root.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
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
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := folder.Names(t.Context()); len(got) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed holds %v (%v)", got, err)
	}
}
