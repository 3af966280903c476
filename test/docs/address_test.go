package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestTextsOfProgramsNameAnAddress holds that users are not led to a path in a repository that they do not have.
func TestTextsOfProgramsNameAnAddress(t *testing.T) {
	path := regexp.MustCompile(`"[^"]*\bdocs/[a-z/-]+\.md`)
	for _, folder := range []string{"../../cmd", "../../pkg"} {
		err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(strings.TrimSpace(line), "//") && path.MatchString(line) {
					t.Errorf("%s: use wellknown.DocsURL in %s", name, strings.TrimSpace(line))
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAddressIsThatOfTheRunbooks(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/kustomize/components/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := "/runbooks: " + wellknown.DocsURL + "troubleshoot/alerts.md\n"; !strings.Contains(string(rules), want) {
		t.Errorf("the rules lack %q", want)
	}
}
