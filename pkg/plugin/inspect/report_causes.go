package inspect

import (
	"cmp"
	"slices"
)

// title names a problem.
func (r Result) title() string { return join(r.Object, string(r.Cause)) }

// linkProblems has each problem name the one that it follows from. Of several with one cause, the others name the first.
func linkProblems(all []Examined) {
	var problems []*Result
	for _, examined := range all {
		for i := range examined.Results {
			if r := &examined.Results[i]; r.Level == Problem {
				problems = append(problems, r)
			}
		}
	}
	parents, firsts := map[*Result]*Result{}, map[string]*Result{}
	for _, r := range problems {
		key := r.check + cmp.Or(r.from, string(r.Cause)+cmp.Or(r.said, r.Message))
		if parents[r] = parentOf(r, problems); parents[r] == nil {
			parents[r] = firsts[key]
		}
		firsts[key] = cmp.Or(firsts[key], r)
	}
	for _, r := range problems {
		top := r
		for range problems { // links have no circle, but may get one
			top = cmp.Or(parents[top], top)
		}
		if top != r {
			r.FollowsFrom = top.title()
		}
	}
}

// parentOf returns the problem of another object that one follows from, nil if none is known.
func parentOf(r *Result, problems []*Result) *Result {
	for _, check := range continuesIn[r.Cause] {
		if i := slices.IndexFunc(problems, func(p *Result) bool { return p != r && p.check == check && r.dependsOn(p.part()) }); i >= 0 {
			return problems[i]
		}
	}
	return nil
}

// dependsOn reports whether a problem of a part may be the cause of a result: that of its own class, file system or
// node, or of what all have.
func (r *Result) dependsOn(part string) bool {
	switch kind, name := split(part); kind {
	case KindClass:
		return name == r.class
	case KindNode:
		return name == r.node
	case KindFileSystem:
		return name == r.fileSystem || part == r.part()
	}
	return true
}

// Entry is a problem with the objects of those that follow from it.
type Entry struct {
	Result

	Follows []string
}

// Entries returns one for each cause.
func Entries(results []Result) (entries []Entry) {
	at := map[string]int{}
	for _, r := range results {
		if r.FollowsFrom == "" {
			at[r.title()] = len(entries)
			entries = append(entries, Entry{Result: r})
		}
	}
	for _, r := range results {
		if i, ok := at[r.FollowsFrom]; ok {
			entries[i].Follows = append(entries[i].Follows, r.Object)
		}
	}
	return entries
}
