package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile(`"([^"]+)"`)

// TestProofsAreInTheCode holds the tables of docs/contribute/proofs.md to the tests, and to the rows of
// docs/reference/failures.md.
func TestProofsAreInTheCode(t *testing.T) {
	section := readPage(t, "docs/contribute/proofs.md").text
	tests := sourceOfTests(t)
	proved := map[string]bool{}
	for _, row := range rows(section) {
		proofs := 0
		for _, name := range codes(row[1]) {
			if strings.HasPrefix(name, "Test") {
				proofs++
				if !strings.Contains(tests, "func "+name+"(t *testing.T)") {
					t.Errorf("no test %s, which is to prove %q", name, row[0])
				}
			}
		}
		for _, scenario := range quoted.FindAllStringSubmatch(row[1], -1) {
			proofs++
			if !strings.Contains(tests, `{"`+scenario[1]+`", `) {
				t.Errorf("no scenario %q, which is to prove %q", scenario[1], row[0])
			}
		}
		if proofs == 0 {
			t.Errorf("nothing proves %q", row[0])
		}
		proved[row[0]] = true
	}
	for _, row := range rows(readPage(t, "docs/reference/failures.md").text) {
		if !proved[row[0]] {
			t.Errorf("no test is named for %q of docs/reference/failures.md", row[0])
		}
	}
}

// sourceOfTests returns the source of all Go tests of the repository.
func sourceOfTests(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	if err := fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		all.Write(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}
