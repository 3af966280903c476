package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// undecided is after how long the check of one object is given up, which counts as a violation.
const undecided = 5 * time.Minute

// verdict is the result of a check.
type verdict struct {
	operations, unfinished int
	kinds                  map[Kind]int
	clients                int
	violations             []string
}

// check judges a history.
func check(all []Operation) verdict {
	v := verdict{kinds: map[Kind]int{}}
	clients := map[int]bool{}
	for _, o := range all {
		clients[o.Client] = true
		switch {
		case o.Failure != "":
			v.violations = append(v.violations, "failed: "+o.String())
		case o.Result == "":
			v.unfinished++
		case o.Result != busy:
			v.operations++
			v.kinds[o.Kind]++
		}
	}
	v.clients = len(clients)
	objects := byObject(all)
	for _, object := range slices.Sorted(maps.Keys(objects)) {
		v.violations = append(v.violations, violations(object, objects[object])...)
	}
	return v
}

// violations judges the operations on one object.
func violations(object string, all []Operation) (found []string) {
	kind, _, _ := strings.Cut(object, "-")
	if kind == "closed" {
		for _, o := range staleReads(all) {
			found = append(found, "stale read: "+o.String())
		}
		return found
	}
	known := slices.DeleteFunc(slices.Clone(all), func(o Operation) bool { // they say nothing
		return o.Kind == read && o.Result != done
	})
	switch porcupine.CheckOperationsTimeout(modelOf(object), forPorcupine(known), undecided) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []string{"undecided: " + object}
	}
	_, info := porcupine.CheckOperationsVerbose(modelOf(object), forPorcupine(known), undecided) // needs more memory
	return []string{fmt.Sprintf("no order explains %s: %s", object, stuck(known, info))}
}

func modelOf(object string) porcupine.Model {
	switch {
	case strings.HasSuffix(object, " (lock)"):
		return lockModel()
	case strings.HasPrefix(object, "direct-"), strings.HasPrefix(object, "ghost-"),
		strings.HasPrefix(object, "fcntl-"), strings.HasPrefix(object, "flock-"):
		return registerModel()
	}
	return nameModel()
}

// stuck returns the first operation that the longest order does not have, and those around it.
func stuck(all []Operation, info porcupine.LinearizationInfo) string {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, order := range partition {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	ordered := map[int]bool{}
	for _, index := range longest {
		ordered[index] = true
	}
	for i := range all {
		if !ordered[i] {
			var text strings.Builder
			for _, o := range all[max(0, i-5):min(len(all), i+5)] {
				fmt.Fprintf(&text, "\n\t%s", o)
			}
			return fmt.Sprintf("%s; around it:%s", all[i], text.String())
		}
	}
	return ""
}

// print writes a verdict for people.
func (v verdict) print(out io.Writer) {
	fmt.Fprintf(out, "%d operations of %d clients, %d unfinished, %d violations\n", v.operations, v.clients, v.unfinished, len(v.violations))
	for _, kind := range slices.Sorted(maps.Keys(v.kinds)) {
		fmt.Fprintf(out, "  %-8s %7d\n", kind, v.kinds[kind])
	}
	for _, violation := range v.violations[:min(20, len(v.violations))] {
		fmt.Fprintln(out, violation)
	}
}
