// Package docs checks the documentation: links have targets, manifests are accepted by the code that
// reads such manifests, and names are those of the programs.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// page is one Markdown file.
type page struct {
	path string // from the root of the repository
	text string
}

// pages are all Markdown files of the repository.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "bin" || name == "testdata" || path != root && strings.HasPrefix(name, ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		all = append(all, page{relative, string(text)})
		return err
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

func readPage(t *testing.T, path string) page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return page{path, string(text)}
}

// block is the text between two fences.
type block struct {
	language string
	text     string
}

// split separates a page into its prose and its blocks. In lists, fences and blocks are indented.
func (p page) split() (prose string, blocks []block) {
	var outside strings.Builder
	indent, open := "", false
	for line := range strings.Lines(p.text) {
		bare := strings.TrimLeft(line, " ")
		switch language, fence := strings.CutPrefix(strings.TrimSpace(bare), "```"); {
		case fence && !open:
			indent, open = line[:len(line)-len(bare)], true
			blocks = append(blocks, block{language: language})
		case fence:
			open = false
		case open:
			blocks[len(blocks)-1].text += strings.TrimPrefix(line, indent)
		default:
			outside.WriteString(line)
		}
	}
	return outside.String(), blocks
}

// section returns the text below a heading, up to the next one of the same or a higher level.
func (p page) section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+p.text, "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", p.path, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	next := regexp.MustCompile(`(?m)^#{1,` + string('0'+rune(len(level))) + `} `).FindStringIndex(rest)
	if next == nil {
		return rest
	}
	return rest[:next[0]]
}

var cellEnd = regexp.MustCompile(`\s+\|\s+`)

// rows returns the cells of a section's tables, without the headings.
func rows(section string) [][]string {
	var all [][]string
	heading := true
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			heading = true
		case strings.HasPrefix(line, "|---"):
			heading = false
		case !heading:
			all = append(all, cellEnd.Split(strings.Trim(line, "| "), -1))
		}
	}
	return all
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// codes returns the texts between backquotes.
func codes(text string) []string {
	var words []string
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// firstCodes returns the names in the first column of a section's tables.
func firstCodes(section string) []string {
	var names []string
	for _, row := range rows(section) {
		names = append(names, codes(row[0])...)
	}
	return names
}

// expectSame compares two sets of names; a repeated name is an error, too.
func expectSame(t *testing.T, what string, want, got []string) {
	t.Helper()
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("%d %s; mismatch (-program +page):\n%s", len(want), what, diff)
	}
}
