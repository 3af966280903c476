package observe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
)

func wantedOn(fileSystem, volume string, since, due time.Time) decide.Pending {
	return decide.Pending{
		FileSystemID: fileSystem, Since: since, Due: due,
		Operation: operations.Operation{Owner: operations.Owner{Volume: volume}},
	}
}

func volumesOf(operations []decide.Pending) []string {
	var names []string
	for _, o := range operations {
		names = append(names, o.Operation.Volume)
	}
	return names
}

func TestIndexHasTheLatestDecisionAboutEachClaim(t *testing.T) {
	now := time.Now()
	one, two := wantedOn("fs-1", "one", now, time.Time{}), wantedOn("fs-2", "two", now, time.Time{})
	var w pendingIndex
	for i, step := range []struct {
		claim      types.UID
		operations []decide.Pending
		first      []string // on fs-1
		second     []string // on fs-2
	}{
		{"a", []decide.Pending{one}, []string{"one"}, nil},
		{"a", []decide.Pending{one}, []string{"one"}, nil},
		{"b", nil, []string{"one"}, nil},
		{"b", []decide.Pending{one, two}, []string{"one", "one"}, []string{"two"}},
		{"a", []decide.Pending{two}, []string{"one"}, []string{"two", "two"}},
		{"b", nil, nil, []string{"two"}},
		{"a", nil, nil, nil},
	} {
		w.set(step.claim, step.operations)
		got := [][]string{volumesOf(first(w.of("fs-1"), 10)), volumesOf(first(w.of("fs-2"), 10))}
		if diff := cmp.Diff([][]string{step.first, step.second}, got); diff != "" {
			t.Errorf("step %d: operations (-want +got):\n%s", i, diff)
		}
	}
	if len(w.byClaim) > 0 || len(w.byFileSystem) > 0 {
		t.Errorf("an index without operations keeps %v and %v", w.byClaim, w.byFileSystem)
	}
}

// TestOperationsAreOrderedByAge, and those that failed by when they may run again.
func TestOperationsAreOrderedByAge(t *testing.T) {
	now := time.Now()
	minutes := func(n int) time.Time { return now.Add(time.Duration(n) * time.Minute) }
	all := []*decide.Pending{}
	for _, w := range []decide.Pending{
		wantedOn("fs-1", "new", minutes(-1), time.Time{}),
		wantedOn("fs-1", "failed", minutes(-60), minutes(5)),
		wantedOn("fs-1", "old", minutes(-30), time.Time{}),
		wantedOn("fs-1", "failed-long-ago", minutes(-60), minutes(-10)),
		wantedOn("fs-1", "same-age", minutes(-30), time.Time{}),
	} {
		all = append(all, &w)
	}
	order := []string{"old", "same-age", "failed-long-ago", "new", "failed"}
	for most := range len(order) + 2 {
		for range len(all) {
			all = append(all[1:], all[0])
			if got, want := volumesOf(first(all, most)), order[:min(most, len(order))]; !slices.Equal(got, want) {
				t.Errorf("the first %d are %q, want %q", most, got, want)
			}
		}
	}
}

// TestSameOperations: a decision that only repeats another one has no file system planned for.
func TestSameOperations(t *testing.T) {
	now := time.Now()
	one := wantedOn("fs-1", "one", now, now)
	for name, tt := range map[string]struct {
		change func(*decide.Pending)
		want   bool
	}{
		"the same":               {func(*decide.Pending) {}, true},
		"due at nearly the time": {func(p *decide.Pending) { p.Due = now.Add(-time.Millisecond) }, true},
		"due earlier":            {func(p *decide.Pending) { p.Due = now.Add(-time.Minute) }, false},
		"due at once":            {func(p *decide.Pending) { p.Due = time.Time{} }, false},
		"another operation":      {func(p *decide.Pending) { p.Operation.LeaveToOthers = true }, false},
		"another file system":    {func(p *decide.Pending) { p.FileSystemID = "fs-2" }, false},
		"with blockers":          {func(p *decide.Pending) { p.Blockers = []operations.Owner{{Volume: "two"}} }, false},
	} {
		other := one
		if tt.change(&other); isSame(one, other) != tt.want || isSame(other, one) != tt.want {
			t.Errorf("%s: want %v", name, tt.want)
		}
	}
}

// TestCopiesDoNotHideThoseOfAnotherNamespace: more of one namespace wait, for longer, than are read.
func TestCopiesDoNotHideThoseOfAnotherNamespace(t *testing.T) {
	now := time.Now()
	g := &Gatherer{}
	for n := range 20 {
		p := wantedOn("fs-1", fmt.Sprint("volume-", n), now.Add(time.Duration(n)*time.Second), time.Time{})
		p.Operation.Kind, p.Operation.Source, p.Operation.Namespace = operations.Clone, operations.Source{SourcePath: "/source"}, "many"
		if n == 19 {
			p.Operation.Namespace = "one"
		}
		g.pending.set(types.UID(p.Operation.Volume), []decide.Pending{p})
	}
	if got := volumesOf(g.Pending("fs-1", 4)); !slices.Equal(got, []string{"volume-0", "volume-1", "volume-19"}) {
		t.Errorf("got %q", got)
	}
}
