package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

var errCrash = errors.New("crash")

func failAt(name string) func(string) error {
	return func(step string) error {
		if step == name {
			return errCrash
		}
		return nil
	}
}

// scenario is a fixture and the batch that is killed in it.
type scenario struct {
	prepare func(w *fixture)
	batch   []operations.Operation
	sweep   bool // after the batch
}

func scenarios() map[string]scenario {
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c2", "ns", 3)
	join := setupOf(c, "/ns/shared")
	join.ShareAcrossClusters = true
	leave := cleanupOf(a, "/ns/shared")
	leave.LeaveToOthers = true
	shared := func(w *fixture) {
		w.done(setupOf(a, "/ns/shared"), setupOf(b, "/ns/shared"), join)
		w.write("/ns/shared/file", "x")
	}
	single := func(w *fixture) {
		w.gidsOf(allocating(setupOf(a, "/ns/a")))
		w.write("/ns/a/deep/file", "x")
	}
	full := func(w *fixture) {
		w.sweep(0) // makes what a sweep needs
		single(w)
		w.full = true
	}
	lost := func(w *fixture) {
		single(w)
		w.gidsOf(allocating(setupOf(lostVolume(), "/ns/lost")))
		w.write("/ns/lost/file", "x")
		w.now = w.now.Add(time.Minute)
	}
	return map[string]scenario{
		"full":        {full, []operations.Operation{cleanupOf(a, "/ns/a")}, false},
		"full, swept": {full, []operations.Operation{cleanupOf(a, "/ns/a")}, true},
		"setups":      {func(*fixture) {}, []operations.Operation{allocating(setupOf(a, "/ns/x/a")), allocating(setupOf(b, "/ns/x/b"))}, false},
		"adoption":    {func(w *fixture) { w.write("/ns/a/file", "x") }, []operations.Operation{setupOf(a, "/ns/a")}, false},
		"adopted, out": {func(w *fixture) {
			w.write("/ns/a/file", "x")
			w.done(setupOf(a, "/ns/a"))
		}, []operations.Operation{cleanupOf(a, "/ns/a")}, false},
		"cleanup":      {single, []operations.Operation{cleanupOf(a, "/ns/a")}, false},
		"swept":        {single, []operations.Operation{cleanupOf(a, "/ns/a")}, true},
		"replaced":     {single, []operations.Operation{setupOf(b, "/ns/a"), cleanupOf(a, "/ns/a")}, false},
		"shared, left": {shared, []operations.Operation{leave}, false},
		"shared, out":  {shared, []operations.Operation{cleanupOf(b, "/ns/shared"), releaseOf(c, "/ns/shared"), releaseOf(a, "/ns/shared")}, false},
		"release":      {shared, []operations.Operation{releaseOf(a, "/ns/shared")}, false},
		"another incarnation": {func(w *fixture) {
			single(w)
			w.done(cleanupOf(a, "/ns/a"))
			w.now = w.now.Add(time.Minute)
			single(w)
			w.now = w.now.Add(time.Minute)
		}, []operations.Operation{cleanupOf(a, "/ns/a")}, false},
		"abandoned copy": {func(w *fixture) {
			w.withSource()
			w.cloneWith(theClone(), failAt("copy sub/c"))
		}, []operations.Operation{abandoned(theClone())}, true},
		"abandoned, published": {func(w *fixture) {
			w.withSource()
			w.cloned(theClone())
		}, []operations.Operation{abandoned(theClone())}, true},
		"taken over":           {lost, []operations.Operation{takeoverOf(lostVolume(), "/ns/lost")}, false},
		"taken over, then out": {lost, []operations.Operation{takeoverOf(lostVolume(), "/ns/lost"), cleanupOf(a, "/ns/a")}, false},
		"retained, taken over": {func(w *fixture) {
			lost(w)
			w.done(releaseOf(lostVolume(), "/ns/lost"))
			w.now = w.now.Add(time.Minute)
		}, []operations.Operation{takeoverOf(lostVolume(), "/ns/lost")}, false},
		"restore": {func(w *fixture) {
			single(w)
			w.done(cleanupOf(a, "/ns/a"))
		}, []operations.Operation{restoreOf(b, "/new/b", a.ClaimUID)}, false},
		"begun, then wanted again": {func(w *fixture) {
			shared(w)
			w.do(cleanupOf(a, "/ns/shared"), operations.Blocked, operations.StillOwned)
			w.now = w.now.Add(time.Minute)
		}, []operations.Operation{setupOf(a, "/ns/shared")}, false},
	}
}

// play runs a scenario's batch, and says whether it came to its end.
func (s scenario) play(w *fixture, step func(string) error) (results []operations.Result, err error) {
	return s.playWith(context.Background(), w, step, nil)
}

func (s scenario) playWith(ctx context.Context, w *fixture, step, lost func(string) error) (results []operations.Result, err error) {
	f, err := fsroot.Open(ctx, w.dir, fsroot.Options{FileSystemID: fsID, Hooks: fsroot.Hooks{Step: step}})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	f.ServerTime = func() time.Time { return w.now }
	f.Lost = lost
	if w.full {
		f.Space = noSpace
	}
	results = batch.Run(ctx, f, s.batch, batch.Options{Workers: 1}).Results
	if s.sweep && !slices.ContainsFunc(results, func(r operations.Result) bool { return r.State == operations.NotDone }) {
		_, err = trash.Sweep(ctx, f, treewalk.Options{Workers: 1})
	}
	return results, err
}

// Every step of every scenario is the last one of a process once; the next run must end where an
// undisturbed one does, with the same results.
func TestCrashAtEveryStep(t *testing.T) {
	asRoot(t)
	for name, s := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prepared := newFixture(t)
			s.prepare(prepared)
			w := prepared.clone()
			var steps []string
			results, err := s.play(w, func(step string) error {
				steps = append(steps, step)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := w.dump()
			for i := range steps {
				w := prepared.clone()
				if _, err := s.play(w, crashAt(i)); err != nil && !errors.Is(err, errCrash) {
					t.Fatal(err)
				}
				again, err := s.play(w, nil)
				if err != nil {
					t.Fatalf("after a crash before step %d (%s): %v", i, steps[i], err)
				}
				if fmt.Sprint(again) != fmt.Sprint(results) {
					t.Errorf("after a crash before step %d (%s): got %+v, want %+v", i, steps[i], again, results)
				}
				if diff := difference(want, w.dump()); diff != "" {
					t.Errorf("after a crash before step %d (%s):\n%s", i, steps[i], diff)
				}
			}
			t.Logf("%d steps", len(steps))
		})
	}
}

// A server carries a rename out, and its answer is lost: the operation ends with an error, goes on
// to its own end, and the Job stops after it. The next run must end where an undisturbed one does.
func TestAnswerLostAtEveryRename(t *testing.T) {
	asRoot(t)
	answers := map[string]error{"no answer": syscall.EIO, "asked again": syscall.ENOENT} // the source of a rename is gone by then
	for name, s := range scenarios() {
		for kind, answer := range answers {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				s.loseEveryAnswer(t, answer)
			})
		}
	}
}

func (s scenario) loseEveryAnswer(t *testing.T, answer error) {
	prepared := newFixture(t)
	s.prepare(prepared)
	w := prepared.clone()
	results, err := s.play(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := w.dump()
	for n := 0; ; n++ {
		w := prepared.clone()
		lost := s.loseAnswer(w, n, answer)
		if lost == "" {
			t.Logf("%d renames", n)
			return
		}
		again, err := s.play(w, nil)
		if err != nil {
			t.Fatalf("after the answer to %q was lost: %v", lost, err)
		}
		if fmt.Sprint(again) != fmt.Sprint(results) {
			t.Errorf("after the answer to %q was lost: got %+v, want %+v", lost, again, results)
		}
		if diff := difference(want, w.dump()); diff != "" {
			t.Errorf("after the answer to %q was lost:\n%s", lost, diff)
		}
	}
}

// loseAnswer plays with the answer to the n-th rename lost, and says which that was; "" is none.
func (s scenario) loseAnswer(w *fixture, n int, answer error) (lost string) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	count := 0
	_, _ = s.playWith(ctx, w, func(step string) error { // the lost answer is the error
		if lost != "" && strings.HasPrefix(step, "begin ") {
			stop()
			return errCrash
		}
		return nil
	}, func(step string) error {
		count++
		if count-1 != n {
			return nil
		}
		lost = step
		return fmt.Errorf("%s: %w", step, answer)
	})
	return lost
}

// crashAt ends everything from the n-th step on, as a dead process does.
func crashAt(n int) func(string) error {
	count := 0
	return func(string) error {
		count++
		if count > n {
			return errCrash
		}
		return nil
	}
}

// A batch that is stopped reports which operations it has not done.
func TestStopBetweenOperations(t *testing.T) {
	w := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	var ops []operations.Operation
	for n := range 5 {
		ops = append(ops, setupOf(owner("c1", "ns", n), fmt.Sprintf("/ns/%d", n)))
	}
	f := w.open(nil)
	defer f.Close()
	done := 0
	report := batch.Run(ctx, f, ops, batch.Options{Workers: 1, Ended: func(operations.Operation, batch.Outcome, time.Duration) {
		if done++; done == 2 {
			stop()
		}
	}})
	for i, result := range report.Results {
		want := operations.Done
		if i >= 2 {
			want = operations.NotDone
		}
		if result.State != want {
			t.Errorf("operation %d: %+v, want %s", i, result, want)
		}
	}
	if report.Succeeded() {
		t.Error("the batch calls itself a success")
	}
	w.there("/ns/1")
	w.gone("/ns/2")
}
