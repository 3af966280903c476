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

// TestSourcesThatPagesNameExist: a reader who opens a file by its name finds it. Decisions also name files of others.
func TestSourcesThatPagesNameExist(t *testing.T) {
	source, found := regexp.MustCompile("`((?:cmd|deploy|examples|hack|pkg|test)/[\\w./-]+)`"), 0
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/adr/") {
			continue
		}
		for _, m := range source.FindAllStringSubmatch(p.text, -1) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s: %v", p.path, err)
			}
			found++
		}
	}
	if found < 20 {
		t.Errorf("found only %d names", found)
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

// anchors returns the names of a page's headings, as GitHub and GitLab make them.
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

// TestPagesAreShort: new users read README.md first, the map fits on a screen, and any other page has one task or
// one idea.
func TestPagesAreShort(t *testing.T) {
	limits := map[string]int{"README.md": 120, "docs/index.md": 60}
	for _, p := range pages(t) {
		limit, ok := limits[p.path]
		if !ok && strings.HasPrefix(p.path, "docs/") {
			limit, ok = 200, true
		}
		if lines := strings.Count(p.text, "\n"); ok && lines > limit {
			t.Errorf("%s has %d lines, more than %d", p.path, lines, limit)
		}
	}
}

// TestPagesAreReachable: from the map of all pages, over links of pages in docs.
func TestPagesAreReachable(t *testing.T) {
	reached := map[string]bool{"docs/index.md": true}
	for todo := []string{"docs/index.md"}; len(todo) > 0; todo = todo[1:] {
		prose, _ := readPage(t, todo[0]).split()
		for _, m := range link.FindAllStringSubmatch(prose, -1) {
			name, _, _ := strings.Cut(m[1], "#")
			path := filepath.ToSlash(filepath.Join(filepath.Dir(todo[0]), name))
			if strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md") && !reached[path] {
				reached[path] = true
				todo = append(todo, path)
			}
		}
	}
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/") && !strings.HasPrefix(p.path, "docs/adr/") && !reached[p.path] {
			t.Errorf("no link leads to %s", p.path)
		}
	}
}

// TestConceptsBeginWithAPicture, except for the glossary.
func TestConceptsBeginWithAPicture(t *testing.T) {
	pictures := 0
	for _, p := range pages(t) {
		name, ok := strings.CutPrefix(p.path, "docs/concepts/")
		if !ok || name == "glossary.md" {
			continue
		}
		pictures++
		picture := "](" + strings.TrimSuffix(name, ".md") + ".svg)"
		if lines := strings.SplitN(p.text, "\n", 4); len(lines) < 4 || !strings.HasPrefix(lines[2], "![") || !strings.HasSuffix(lines[2], picture) {
			t.Errorf("%s does not begin with its picture", p.path)
		}
	}
	if pictures == 0 {
		t.Error("there are no concepts")
	}
}
