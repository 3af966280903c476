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
// docs/reference/failures.md. A scenario of the long run is named as such, and proves nothing alone.
func TestProofsAreInTheCode(t *testing.T) {
	section := readPage(t, "docs/contribute/proofs.md").text
	tests, long := sourceOfTests(t), longScenarios(t)
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
			entry := `{"` + scenario[1] + `", `
			isLong := strings.Contains(long, entry)
			switch {
			case !strings.Contains(tests, entry):
				t.Errorf("no scenario %q, which is to prove %q", scenario[1], row[0])
			case isLong != strings.Contains(row[1], "in the long run "+scenario[0]):
				t.Errorf("scenario %q runs in make e2e-long only: %v, and the page says otherwise", scenario[1], isLong)
			case !isLong:
				proofs++
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

// TestPromisesAreProved holds that each promise of the overview is, by its first sentence, one of the page of proofs.
func TestPromisesAreProved(t *testing.T) {
	proved := "\n" + strings.ToLower(readPage(t, "docs/contribute/proofs.md").text)
	promises := regexp.MustCompile(`(?m)^- (.+)\.$`).FindAllStringSubmatch(readPage(t, "docs/concepts/overview.md").section(t, "## What it promises"), -1)
	for _, promise := range promises {
		first, _, _ := strings.Cut(promise[1], ". ")
		if !strings.Contains(proved, "\n| "+strings.ToLower(first)) {
			t.Errorf("no row of the page of proofs begins with %q", first)
		}
	}
	if len(promises) == 0 {
		t.Error("the overview promises nothing")
	}
}

// longScenarios returns the source of the scenarios of make e2e-long.
func longScenarios(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for path, list := range map[string]string{
		"test/e2e/e2e_test.go": "var longScenarios = ", "test/e2e/anywhere_test.go": "var claimsAnywhere = ",
	} {
		_, rest, ok := strings.Cut(readPage(t, path).text, list)
		if !ok {
			t.Fatalf("%s has no %s", path, list)
		}
		scenarios, _, _ := strings.Cut(rest, "\n}\n")
		all.WriteString(scenarios)
	}
	return all.String()
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
