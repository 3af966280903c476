package main

import (
	"cmp"
	"fmt"
	"strings"
)

// render makes a table of each group.
func render(groups []group) string {
	var text strings.Builder
	for _, g := range groups {
		if g.title != "" {
			fmt.Fprintf(&text, "\n%s:\n", g.title)
		}
		text.WriteString("\n| flag | variable | default | meaning |\n|---|---|---|---|\n")
		for _, s := range g.settings {
			fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", code(strings.TrimSpace(s.flag+" "+s.kind)), code(s.variable), code(s.shown()), cell(s.meaning))
		}
	}
	return text.String() + "\n"
}

// shown returns the default as shown on the page. The help omits zero values.
func (s setting) shown() string {
	switch s.kind {
	case "":
		return cmp.Or(s.standard, "false")
	case "int", "number":
		return cmp.Or(s.standard, "0")
	}
	return s.standard
}

func code(text string) string {
	if text == "" {
		return "–"
	}
	return "`" + cell(text) + "`"
}

// cell escapes a text in a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// replace replaces the text between the two markers of a title.
func replace(page, title, text string) (string, error) {
	begin, end := marker("begin", title), marker("end", title)
	before, rest, ok := strings.Cut(page, begin)
	if !ok {
		return "", fmt.Errorf("the page has no line %s", begin)
	}
	_, after, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("the page has no line %s after %s", end, begin)
	}
	return before + begin + "\n" + text + end + after, nil
}

func marker(which, title string) string {
	return fmt.Sprintf("<!-- %s %s: make generate -->", which, title)
}
