package docs

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestMapHasEveryPackage holds the map of docs/contribute/code.md to the folders that have Go files.
func TestMapHasEveryPackage(t *testing.T) {
	found := map[string]bool{}
	for _, top := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				folder, relErr := filepath.Rel(root, filepath.Dir(path))
				found[filepath.ToSlash(folder)] = true
				return relErr
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for folder := range found {
		want = append(want, folder)
	}
	expectSame(t, "packages", want, firstCodes(readPage(t, "docs/contribute/code.md").section(t, "## Packages")))
}
