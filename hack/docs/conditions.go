package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

const (
	conditionsPage = "docs/reference/conditions.md"
	statusFolder   = "pkg/api/status"
	tunnelFolder   = "pkg/api/tunnelspec"
)

// shownObjects lists the kinds of objects that have conditions, and how the page names them.
func shownObjects() []struct {
	kind  status.Kind
	title string
} {
	return []struct {
		kind  status.Kind
		title string
	}{
		{status.FileSystem, "`FileSystem` (`efsfs`)"},
		{status.Node, "`NodeTunnels` (`efsnode`)"},
		{status.Installation, "`Installation` (`efsinstall`)"},
	}
}

// addConditions writes the types of conditions, the reasons that make them False, and the causes of unhealthy tunnels,
// claims and volumes. Meanings are the comments of the constants, remedies those that the plugin prints.
func addConditions(fresh map[string]string) error {
	words, err := constants(statusFolder)
	if err != nil {
		return err
	}
	events, err := constants(namesFolder)
	if err != nil {
		return err
	}
	tunnels, err := constants(tunnelFolder)
	if err != nil {
		return err
	}
	meanings := meaningsOf(append(words, events...))
	for title, part := range map[string]string{
		"types of conditions":          renderTypes(meanings),
		"reasons of conditions":        renderReasons(meanings),
		"causes of claims and volumes": renderCauses(words, meanings, remedyOfCause),
		"causes of TunnelUnhealthy":    renderCauses(tunnels, meaningsOf(tunnels), tunnelspec.ProbeRemedy),
	} {
		if err := insert(fresh, conditionsPage, title, part); err != nil {
			return err
		}
	}
	return nil
}

// meaningsOf returns the meanings of constants by their values, the first one of each value.
func meaningsOf(all []name) map[string]string {
	values, meanings := valuesOf(all), map[string]string{}
	for _, n := range all {
		text := strings.TrimPrefix(meaning(n, values), "the reason of ")
		text = strings.TrimPrefix(text, ofEvent.FindString(text))
		meanings[n.value] = cmp.Or(meanings[n.value], strings.TrimSuffix(text, "."))
	}
	return meanings
}

func renderTypes(meanings map[string]string) string {
	var text strings.Builder
	text.WriteString("\n| object | condition | True while |\n|---|---|---|\n")
	for _, object := range shownObjects() {
		title := object.title
		for _, conditionType := range status.TypesOf(object.kind) {
			fmt.Fprintf(&text, "| %s | `%s` | %s |\n", title, conditionType, cell(meanings[conditionType]))
			title = ""
		}
	}
	return text.String() + "\n"
}

func renderReasons(meanings map[string]string) string {
	var text strings.Builder
	text.WriteString("\n| reason | makes False | meaning | what to do |\n|---|---|---|---|\n")
	for _, reason := range status.Reasons() {
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", reason, typesOf(reason), cell(meanings[reason]), cell(status.Remedy(reason)))
	}
	return text.String() + "\n"
}

// typesOf returns the types that a reason makes False, which may differ between the kinds of subjects.
func typesOf(reason string) string {
	var types []string
	for _, object := range shownObjects() {
		of := status.Condition{Subject: status.Subject{Kind: object.kind}, Reason: reason}.TypeOf()
		types = append(types, code(of))
	}
	slices.Sort(types)
	return strings.Join(slices.Compact(types), ", ")
}

func remedyOfCause(cause string) string {
	if status.IsProgress(cause) {
		return "nothing: it ends by itself"
	}
	return status.CauseRemedy(cause)
}

// renderCauses makes a table of the constants that have a remedy.
func renderCauses(words []name, meanings map[string]string, remedyOf func(string) string) string {
	var text strings.Builder
	text.WriteString("\n| cause | meaning | what to do |\n|---|---|---|\n")
	for _, n := range words {
		if remedy := remedyOf(n.value); remedy != "" {
			means, _ := sentences(meanings[n.value])
			fmt.Fprintf(&text, "| `%s` | %s | %s |\n", n.value, cell(means), cell(remedy))
		}
	}
	return text.String() + "\n"
}
