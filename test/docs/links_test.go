package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	remote  = regexp.MustCompile(`^[a-z]+:`)
)

func TestLinksHaveTargets(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		prose, _ := p.split()
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			if remote.MatchString(m[1]) {
				continue
			}
			found++
			if err := checkTarget(p, m[1]); err != nil {
				t.Errorf("%s: %s: %v", p.path, m[1], err)
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d links", found)
	}
}

// checkTarget returns an error if the file or the heading of a link does not exist.
func checkTarget(from page, target string) error {
	name, anchor, _ := strings.Cut(target, "#")
	path := from.path
	if name != "" {
		path = filepath.Join(filepath.Dir(from.path), name)
	}
	text, err := os.ReadFile(filepath.Join(root, path))
	switch info, statErr := os.Stat(filepath.Join(root, path)); {
	case statErr != nil:
		return statErr
	case anchor == "":
		return nil
	case info.IsDir():
		return fmt.Errorf("a folder has no headings")
	case err != nil:
		return err
	}
	if !slices.Contains(anchors(page{path, string(text)}), anchor) {
		return fmt.Errorf("%s has no heading for it", path)
	}
	return nil
}

// anchors are the names of a page's headings, as GitHub and GitLab make them.
func anchors(p page) []string {
	prose, _ := p.split()
	var names []string
	times := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(prose, -1) {
		name := anchor(m[1])
		if n := times[name]; n > 0 {
			names = append(names, fmt.Sprintf("%s-%d", name, n))
		} else {
			names = append(names, name)
		}
		times[name]++
	}
	return names
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	p := page{text: "# One, two!\n\n```sh\n# a comment\n```\n## `a_b` (c.d)\n## One, two!\n"}
	if diff := cmp.Diff([]string{"one-two", "a_b-cd", "one-two-1"}, anchors(p)); diff != "" {
		t.Errorf("anchors mismatch (-want +got):\n%s", diff)
	}
}

// TestFrontPageIsShort: new users read it first.
func TestFrontPageIsShort(t *testing.T) {
	if lines := strings.Count(readPage(t, "README.md").text, "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, more than 120", lines)
	}
}
