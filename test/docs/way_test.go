package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxFilesOfTheWay limits the files that show the way of a claim from its event to its volume.
const maxFilesOfTheWay = 5

// TestWayOfAClaimIsInTheCode holds the section of docs/contribute/code.md to the code: few files, which exist
// and have the functions that it names.
func TestWayOfAClaimIsInTheCode(t *testing.T) {
	section := readPage(t, "docs/contribute/code.md").section(t, "## The way of a claim through the code")
	files := 0
	for _, step := range regexp.MustCompile(`(?m)^\d\. .*$`).FindAllString(section, -1) {
		source := ""
		for _, code := range codes(step) {
			if !strings.HasSuffix(code, ".go") {
				if !strings.Contains(source, " "+code+"(") {
					t.Errorf("no function %s in the file that is named before it: %s", code, step)
				}
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, code))
			if err != nil {
				t.Fatal(err)
			}
			source = string(text)
			files++
		}
	}
	for _, m := range regexp.MustCompile("`([a-z/]+\\.go)` \\(`(\\w+)`").FindAllStringSubmatch(section, -1) {
		if source := readPage(t, m[1]).text; !strings.Contains(source, " "+m[2]+"(") {
			t.Errorf("no function %s in %s", m[2], m[1])
		}
	}
	if files == 0 || files > maxFilesOfTheWay {
		t.Errorf("the way has %d files, want 1 to %d", files, maxFilesOfTheWay)
	}
}
