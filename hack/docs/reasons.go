package main

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"regexp"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/status"
)

const (
	eventsPage    = "docs/reference/events.md"
	reasonsPage   = "docs/reference/reasons.md"
	routingFolder = "pkg/node/routing"
)

// addReasons writes the reasons of events, of problems of tunnels and of unusable targets. Their comments say what they mean
// and, after the first sentence, what to do.
func addReasons(fresh map[string]string) error {
	events, err := constants(namesFolder)
	if err != nil {
		return err
	}
	tunnels, err := constants(tunnelFolder)
	if err != nil {
		return err
	}
	targets, err := constants(routingFolder)
	if err != nil {
		return err
	}
	eventTable, err := renderEvents(events)
	if err != nil {
		return err
	}
	for _, part := range []struct{ page, title, text string }{
		{eventsPage, "events", eventTable},
		{reasonsPage, "reasons of tunnel problems", renderProblems(tunnels, "Reason") + "\n"},
		{reasonsPage, "reasons of unusable targets", renderProblems(targets, "") + "\n"},
	} {
		if err := insert(fresh, part.page, part.title, part.text); err != nil {
			return err
		}
	}
	return errors.Join(linkHeadings(fresh, eventsPage), linkHeadings(fresh, reasonsPage))
}

// ofEvent is the beginning of an event's comment: the objects, and its types if not only Warning.
var ofEvent = regexp.MustCompile(`^on (?:the )?([^:]+?)((?:, (?:Normal|Warning))*): `)

func renderEvents(all []name) (string, error) {
	values := valuesOf(all)
	var text strings.Builder
	text.WriteString("\n| reason | type | on | meaning | what to do |\n|---|---|---|---|---|\n")
	for _, n := range all {
		if !strings.HasPrefix(n.constant, "Event") {
			continue
		}
		about := meaning(n, values)
		found := ofEvent.FindStringSubmatch(about)
		if found == nil {
			return "", fmt.Errorf("the comment of %s does not begin with the object that the event is on: %q", n.constant, about)
		}
		means, advice := strings.TrimPrefix(about, found[0]), status.Remedy(n.value)
		if advice == "" {
			means, advice = sentences(means)
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", n.value,
			cmp.Or(strings.TrimPrefix(found[2], ", "), "Warning"), found[1], cell(strings.TrimSuffix(means, ".")), cell(cmp.Or(advice, "–")))
	}
	return text.String() + "\n", nil
}

// renderProblems makes rows of the exported constants of a type Reason, whose names begin with a prefix, and of the reasons
// of failed probes, as metrics name them.
func renderProblems(all []name, prefix string) string {
	var text strings.Builder
	text.WriteString("\n| reason | meaning | what to do |\n|---|---|---|\n")
	for _, n := range all {
		shown := n.value
		switch {
		case strings.HasPrefix(n.constant, "Probe"):
			shown = n.constant
		case n.kind != "Reason" || !strings.HasPrefix(n.constant, prefix) || !ast.IsExported(n.constant):
			continue
		}
		means, advice := sentences(meaning(n, nil))
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", shown, cell(means), cell(cmp.Or(advice, "–")))
	}
	return text.String()
}

// sentences separates the first sentence from what comes after it, for two cells of a table.
func sentences(text string) (first, rest string) {
	first, rest, _ = strings.Cut(text, ". ")
	if capital.MatchString(rest) {
		rest = strings.ToLower(rest[:1]) + rest[1:]
	}
	return strings.TrimSuffix(first, "."), strings.TrimSuffix(rest, ".")
}

// capital begins a word, and no abbreviation.
var capital = regexp.MustCompile("^[A-Z][a-z]* ?[a-z]")

var ownHeading = regexp.MustCompile("(?m)^### `(.+)`$")

// linkHeadings links each heading of a page that is a name from the name's row in one of the page's tables.
func linkHeadings(fresh map[string]string, page string) error {
	for _, heading := range ownHeading.FindAllStringSubmatch(fresh[page], -1) {
		bare, linked := "\n| `"+heading[1]+"` |", "\n| [`"+heading[1]+"`](#"+strings.ToLower(heading[1])+") |"
		fresh[page] = strings.Replace(fresh[page], bare, linked, 1)
		if !strings.Contains(fresh[page], linked) {
			return fmt.Errorf("%s has a heading %q that no table has", page, heading[1])
		}
	}
	return nil
}
