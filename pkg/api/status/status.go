// Package status holds conditions: what is wrong with a part of an installation, for as long as it is.
// Events, log lines, metrics and the status of API objects follow from what Set.Update returns.
package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of a Subject.
type Kind string

// Kinds of subjects.
const (
	Installation Kind = "Installation"
	FileSystem   Kind = "FileSystem"
	Volume       Kind = "Volume"
	Node         Kind = "Node"
	Tunnel       Kind = "Tunnel"      // of the program's own node
	MountTarget  Kind = "MountTarget" // by its address
)

// Subject names the part that a condition is about. An Installation needs no name.
type Subject struct {
	Kind Kind
	Name string
}

// String returns the kind and the name.
func (s Subject) String() string { return strings.TrimSpace(string(s.Kind) + " " + s.Name) }

// Reference names a condition by its subject and reason.
type Reference struct {
	Subject Subject
	Reason  string
}

// Condition says what is wrong with a subject.
type Condition struct {
	Subject Subject
	Reason  string // in CamelCase, one that TypeOf knows
	Message string
	Cause   Reference // names what the condition follows from; zero if that is unknown
	Since   time.Time // set by Set.Update
	// Detail separates conditions of one subject and reason. A condition with a Detail keeps its first
	// message; without one, another message is a change.
	Detail string
}

// Reference returns the condition's subject and reason.
func (c Condition) Reference() Reference { return Reference{c.Subject, c.Reason} }

// Ended returns what to say when the condition has ended.
func (c Condition) Ended() string { return c.Reason + " of " + c.Subject.String() + " has ended" }

// FirstFew lists at most five names in a message, and counts the others.
func FirstFew(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:most], ", "), len(names)-most)
}

// compare orders conditions by subject, reason and detail.
func compare(a, b Condition) int {
	return cmp.Or(
		strings.Compare(string(a.Subject.Kind), string(b.Subject.Kind)), strings.Compare(a.Subject.Name, b.Subject.Name),
		strings.Compare(a.Reason, b.Reason), strings.Compare(a.Detail, b.Detail), strings.Compare(a.Message, b.Message))
}

// key identifies a condition as long as it holds.
type key struct {
	Reference
	detail string
}

// held is a condition that holds, or that was found a short time ago.
type held struct {
	Condition
	found time.Time
	round int // the update that found it
}

// Set has the conditions that hold. The zero Set has none and is ready for use.
type Set struct {
	// Linger is how long a condition holds that is not found any more. It keeps one that comes and goes
	// from being reported each time.
	Linger time.Duration

	held  map[key]held
	round int // counts updates
}

// Changes lists what an update of a Set changed, each list in order of subject and reason.
type Changes struct {
	Began, Changed []Condition
	// Ended lists the conditions that hold no longer, if no other one of their subject and reason does.
	Ended []Condition
}

// IsZero reports whether nothing has changed.
func (c Changes) IsZero() bool { return len(c.Began)+len(c.Changed)+len(c.Ended) == 0 }

// Update replaces the conditions of the Set by those that were found now.
//
//	held before   found now            returned
//	no            yes                  Began, since now
//	yes           other message        Changed, since then, unless it has a Detail
//	yes           other cause          Changed, since then
//	yes           as before            nothing
//	yes           no, for Linger       Ended
func (s *Set) Update(now time.Time, found []Condition) Changes {
	var changes Changes
	if s.held == nil {
		s.held = map[key]held{}
	}
	s.round++
	for _, c := range found {
		k := key{c.Reference(), c.Detail}
		before, holds := s.held[k]
		c.Since = now
		switch {
		case !holds:
			changes.Began = append(changes.Began, c)
		case c.Detail != "":
			c = before.Condition
		default:
			c.Since = before.Since
			if c != before.Condition {
				changes.Changed = append(changes.Changed, c)
			}
		}
		s.held[k] = held{c, now, s.round}
	}
	changes.Ended = s.expire(now)
	for _, list := range [][]Condition{changes.Began, changes.Changed, changes.Ended} {
		slices.SortFunc(list, compare)
	}
	return changes
}

// expire removes the conditions that were not found for Linger.
func (s *Set) expire(now time.Time) []Condition {
	gone, stays := map[Reference]Condition{}, map[Reference]bool{}
	for k, c := range s.held {
		if c.round == s.round || now.Sub(c.found) < s.Linger {
			stays[k.Reference] = true
			continue
		}
		gone[k.Reference] = c.Condition
		delete(s.held, k)
	}
	maps.DeleteFunc(gone, func(r Reference, _ Condition) bool { return stays[r] })
	return slices.Collect(maps.Values(gone))
}

// Conditions returns the conditions that hold, in order of subject and reason.
func (s *Set) Conditions() []Condition {
	var all []Condition
	for c := range maps.Values(s.held) {
		all = append(all, c.Condition)
	}
	slices.SortFunc(all, compare)
	return all
}
