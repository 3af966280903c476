package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

const changelog = "CHANGELOG.md"

// readNotes returns the notes of a version.
func readNotes(version string) (string, error) {
	text, err := os.ReadFile(changelog)
	if err != nil {
		return "", fmt.Errorf("reading notes (in the root of the repository?): %w", err)
	}
	return cutNotes(string(text), version)
}

var (
	section = regexp.MustCompile(`(?m)^## .*\n`)
	// inner is a link to another file of the repository.
	inner = regexp.MustCompile(`\[([^\]]*)\]\((?:[^):#]+(?:#[^)]*)?|#[^)]*)\)`)
)

// cutNotes returns the version's section of the changelog. Links inside the repository lead nowhere from
// where the notes are published, so their text stays alone.
func cutNotes(text, version string) (string, error) {
	number := strings.TrimPrefix(version, "v")
	headings := section.FindAllStringIndex(text, -1)
	for i, at := range headings {
		heading := text[at[0]:at[1]]
		if !strings.HasPrefix(heading, "## ["+number+"]") {
			continue
		}
		end := len(text)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		notes := strings.TrimSpace(text[at[1]:end])
		if notes == "" {
			return "", fmt.Errorf("the section of %s in %s is empty", number, changelog)
		}
		return inner.ReplaceAllString(notes, "$1") + "\n", nil
	}
	return "", fmt.Errorf("%s has no section \"## [%s] - DATE\": move what is under [Unreleased] there", changelog, number)
}
