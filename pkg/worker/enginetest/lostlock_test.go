package enginetest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/clone"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

const latePath = "/ns/data"

// What others may copy or restore.
var lateSource, lateTrashed = owner("c1", "ns", 9), owner("c1", "ns", 8)

// lateRun is a run whose node is cut off for longer than its lease. The server gives its locks to others, and
// carries out what the node had sent, or sends afterwards.
type lateRun struct {
	prepare func(w *fixture)
	op      operations.Operation
	others  map[string]otherRuns
}

// otherRuns are those of others meanwhile, one after the other. Then a pod of a volume begins to work.
type otherRuns struct {
	ops       []operations.Operation
	live      operations.Owner
	path      string // of its directory
	idle      bool   // the pod has written nothing yet
	calledOff bool   // the manager does not want the late operation any more
}

func lateRuns() map[string]lateRun {
	const p, back = latePath, "/ns/back"
	a, b, c, d := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c2", "ns", 3), owner("c1", "ns", 4)
	trashed := lateTrashed
	join, adopt, taken := setupOf(c, p), setupOf(b, p), setupOf(a, p)
	join.ShareAcrossClusters = true
	adopt.Adopt, adopt.Made = true, true
	taken.Cluster, taken.Adopt, taken.Made, taken.TakeOver = "c3", true, true, a.Cluster
	keep := cleanupOf(a, p)
	keep.Keep = "72h"
	clone := func(o operations.Owner) operations.Operation { return cloneOf(o, p, lateSource, sourcePath) }
	runs := func(live operations.Owner, ops ...operations.Operation) otherRuns {
		return otherRuns{ops: ops, live: live, path: p}
	}
	at := func(path string, o otherRuns) otherRuns {
		o.path = path
		return o
	}
	calledOff := func(o otherRuns) otherRuns {
		o.calledOff = true
		return o
	}
	nothing := func(*fixture) {}
	inUse := func(w *fixture) {
		w.done(setupOf(a, p))
		w.write(p+"/old", "x")
	}
	return map[string]lateRun{
		"cleanup": {inUse, cleanupOf(a, p), map[string]otherRuns{
			"another cluster joins":                            runs(c, join),
			"another volume joins":                             runs(b, setupOf(b, p)),
			"another volume adopts, with the right to remove":  runs(b, adopt),
			"another cluster takes over":                       calledOff(runs(taken.Owner, taken)),
			"another cluster joins and inherits":               runs(c, join, cleanupOf(a, p)),
			"another volume joins and inherits":                runs(b, setupOf(b, p), leaving(cleanupOf(a, p))),
			"it is cleaned up and restored":                    runs(b, cleanupOf(a, p), restoreOf(b, p, a.ClaimUID)),
			"it is cleaned up and restored elsewhere":          at(back, runs(b, cleanupOf(a, p), restoreOf(b, back, a.ClaimUID))),
			"it is cleaned up, and other data is restored":     runs(b, cleanupOf(a, p), restoreOf(b, p, trashed.ClaimUID)),
			"it is restored by a volume that is restored, too": runs(d, cleanupOf(a, p), restoreOf(b, p, a.ClaimUID), cleanupOf(b, p), restoreOf(d, p, b.ClaimUID)),
			"it is cleaned up, and another volume is set up":   runs(b, cleanupOf(a, p), setupOf(b, p)),
			"it is cleaned up, and a copy published":           runs(b, cleanupOf(a, p), clone(b)),
			"it begins again":                                  calledOff(runs(a, setupOf(a, p))),
			"it is cleaned up, and begins again":               calledOff(runs(a, cleanupOf(a, p), setupOf(a, p))),
			"it is released, and another volume joins":         runs(b, releaseOf(a, p), setupOf(b, p)),
		}},
		"setup": {nothing, setupOf(a, p), map[string]otherRuns{
			"it is done": runs(a, setupOf(a, p)),
			"it is done, and its pod has not written yet":   {ops: []operations.Operation{setupOf(a, p)}, live: a, path: p, idle: true},
			"another cluster joins":                         runs(c, setupOf(a, p), join),
			"another volume joins and inherits":             calledOff(runs(b, setupOf(a, p), setupOf(b, p), leaving(cleanupOf(a, p)))),
			"it is done and cleaned up, and another set up": calledOff(runs(b, setupOf(a, p), cleanupOf(a, p), setupOf(b, p))),
			"another volume is set up":                      runs(b, setupOf(b, p)),
			"other data is restored":                        runs(b, restoreOf(b, p, trashed.ClaimUID)),
			"a copy is published":                           runs(b, clone(b)),
		}},
		"restore": {func(w *fixture) {
			inUse(w)
			w.done(keep)
		}, restoreOf(b, p, a.ClaimUID), map[string]otherRuns{
			"it is done":                           runs(b, restoreOf(b, p, a.ClaimUID)),
			"another cluster joins":                runs(c, restoreOf(b, p, a.ClaimUID), join),
			"it is restored by another volume":     at(back, runs(d, restoreOf(d, back, a.ClaimUID))),
			"another volume is set up":             calledOff(runs(d, setupOf(d, p))),
			"it is done, cleaned up, and restored": calledOff(at(back, runs(d, restoreOf(b, p, a.ClaimUID), cleanupOf(b, p), restoreOf(d, back, b.ClaimUID)))),
			"other data is restored":               calledOff(runs(d, restoreOf(d, p, trashed.ClaimUID))),
			"a copy is published":                  calledOff(runs(d, clone(d))),
		}},
		"clone": {nothing, clone(b), map[string]otherRuns{
			"it is done":                          runs(b, clone(b)),
			"another cluster joins":               runs(c, clone(b), join),
			"it is abandoned, and another set up": calledOff(runs(d, abandoned(clone(b)), setupOf(d, p))),
			"it is done, and the path another's":  calledOff(runs(d, clone(b), cleanupOf(b, p), setupOf(d, p))),
			"another volume is set up":            calledOff(runs(d, setupOf(d, p))),
			"other data is restored":              calledOff(runs(d, restoreOf(d, p, trashed.ClaimUID))),
		}},
		"release": {inUse, releaseOf(a, p), map[string]otherRuns{
			"it is done, and another volume joins": runs(b, releaseOf(a, p), setupOf(b, p)),
			"it begins again":                      calledOff(runs(a, setupOf(a, p))),
			"another cluster takes over":           calledOff(runs(taken.Owner, taken)),
			"it is cleaned up and set up":          calledOff(runs(a, cleanupOf(a, p), setupOf(a, p))),
		}},
	}
}

// Whatever step a run is held at until others have its locks, or dies at, and whatever these do: what a pod writes
// then stays where it is, in the directory that it has mounted, and in the ledger.
func TestLateRunLeavesWhatIsInUseByThen(t *testing.T) {
	for name, late := range lateRuns() {
		for story, others := range late.others {
			t.Run(name+", "+story, func(t *testing.T) {
				t.Parallel()
				late.stopsAtEveryStep(t, others, interruption{})
				late.stopsAtEveryStep(t, others, interruption{dies: true})
				if slices.ContainsFunc(others.ops, func(o operations.Operation) bool { return o.Kind == operations.Cleanup }) {
					late.stopsAtEveryStep(t, others, interruption{swept: true})
				}
			})
		}
	}
}

type interruption struct {
	dies  bool // the run ends where it is held
	swept bool // others empty the trash after each of their operations
}

func (l lateRun) stopsAtEveryStep(t *testing.T, others otherRuns, how interruption) {
	played := 0
	for n := 0; ; n++ {
		w := newFixture(t)
		w.prepareFor(append(others.ops, l.op))
		l.prepare(w)
		at, result, pod := l.stopAt(w, n, others, how)
		if at == "" {
			break
		}
		if pod == nil { // others cannot do so at this step
			continue
		}
		played++
		if problem := pod.problem(w); problem != "" {
			t.Errorf("%+v, before step %d (%s), result %+v: %s", how, n, at, result, problem)
		}
	}
	if played == 0 && !how.swept { // which empties a trash that is to be restored
		t.Error("the others could do so at no step")
	}
}

// prepareFor makes what operations copy and restore.
func (w *fixture) prepareFor(ops []operations.Operation) {
	if slices.ContainsFunc(ops, operations.Operation.Copies) {
		w.done(setupOf(lateSource, sourcePath))
		w.write(sourcePath+"/a", "a")
		w.write(sourcePath+"/b", "b")
		w.hardLink(sourcePath+"/b", sourcePath+"/b-too")
		w.write(sourcePath+"/sub/c", "c")
	}
	if slices.ContainsFunc(ops, func(o operations.Operation) bool { return o.RestoreFrom == lateTrashed.ClaimUID }) {
		w.discarded(lateTrashed, "/ns/trashed", "72h")
	}
}

// stopAt stops the run before its n-th step, if it has that many since it has read anything that may change.
// Afterwards the manager repeats it.
func (l lateRun) stopAt(w *fixture, n int, others otherRuns, how interruption) (at string, result operations.Result, pod *pod) {
	count := -1
	result = w.perform(l.op, func(step string) error {
		if count >= 0 || strings.HasPrefix(step, "begin ") {
			count++
		}
		if count == n && at == "" {
			at = step
			if !how.dies {
				w.loseLocks()
				pod = w.play(others, how.swept)
			}
		}
		if how.dies && count >= n {
			return errCrash
		}
		return nil
	})
	if how.dies && at != "" {
		pod = w.play(others, how.swept)
	}
	if pod == nil {
		return at, result, nil
	}
	if result.State != operations.Done && !others.calledOff {
		again := l.op
		again.LeaveToOthers = again.Kind == operations.Cleanup
		w.perform(again, nil)
	}
	w.sweep(0)
	return at, result, pod
}

func (w *fixture) perform(op operations.Operation, step func(string) error) operations.Result {
	f := w.open(nil)
	defer f.Close()
	f.Step = step
	if op.Copies() {
		return clone.Clone(context.Background(), f, op, clone.Options{Workers: 1})
	}
	return batch.Run(context.Background(), f, []operations.Operation{op}, batch.Options{}).Results[0]
}

// loseLocks lets others take all locks that are held.
func (w *fixture) loseLocks() {
	w.t.Helper()
	locks, err := filepath.Glob(w.path(".efs-stunnel/clones/*/" + trash.CloneLock))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, lock := range append(locks, w.path(".efs-stunnel/lock")) {
		if err := fsroot.IgnoreMissing(os.Remove(lock)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// pod has the directory of a volume mounted.
type pod struct {
	volume, path string
	inode        uint64
	idle         bool
}

// play carries out operations of others; if one of them is refused, there is no pod.
func (w *fixture) play(others otherRuns, swept bool) *pod {
	for _, op := range others.ops {
		if w.perform(op, nil).State != operations.Done {
			return nil
		}
		if swept {
			w.sweep(0)
		}
	}
	if !others.idle {
		w.write(others.path+"/live", "x")
		_ = os.Remove(w.path(others.path + "/b")) // if it is a copy
	}
	return &pod{others.live.Volume, others.path, w.inode(others.path), others.idle}
}

// problem is what has become worse for the pod; "" is nothing.
func (p *pod) problem(w *fixture) string {
	if _, err := os.Lstat(w.path(p.path + "/live")); err != nil && !p.idle {
		return "the file of a live volume is gone"
	}
	if _, err := os.Lstat(w.path(p.path + "/b")); err == nil {
		return "a file is there again that a pod has removed"
	}
	if info, err := os.Lstat(w.path(p.path)); err != nil || fsroot.StatOf(info).Ino != p.inode {
		return "the directory of a live volume was replaced"
	}
	if _, err := os.Lstat(w.path(".efs-stunnel/owners" + p.path + "/@" + p.volume)); err != nil {
		return "a live volume is in the ledger no more: " + err.Error()
	}
	return ""
}

// Another run has the place of a copy, and has begun a file anew when this one goes on.
func TestRunThatLostItsPlacePublishesNothing(t *testing.T) {
	w := newFixture(t)
	w.done(setupOf(owner("c1", "ns", 1), sourcePath))
	w.write(sourcePath+"/file", "content")
	copied := w.path(".efs-stunnel/clones/" + theClone().Volume + "/copy/file")
	run := func(ctx context.Context, inTheMiddle func()) operations.Result {
		f := w.open(nil) //nolint:contextcheck // it opens a local folder
		defer f.Close()
		once := sync.OnceFunc(inTheMiddle)
		f.Request = func(int) {
			if info, err := os.Lstat(copied); err == nil && info.Size() == 0 {
				once()
			}
		}
		return clone.Clone(ctx, f, theClone(), clone.Options{Workers: 2})
	}
	var another operations.Result
	result := run(t.Context(), func() {
		w.loseLocks()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		another = run(ctx, stop)
	})
	if another.Reason != operations.Stopped || result.State != operations.Failed || result.Reason != operations.Locked {
		t.Errorf("got %+v, the other one %+v", result, another)
	}
	w.gone(clonePath)
	w.cloned(theClone())
	if data, err := os.ReadFile(w.path(clonePath + "/file")); string(data) != "content" {
		t.Errorf("the copy is %q (%v)", data, err)
	}
}

// The lock is taken from a sweep between two moves. By then, what is in a slot is another incarnation's, and kept.
func TestLateSweepRemovesNothingThatIsKept(t *testing.T) {
	const volumes = 5
	for n := range volumes {
		w := newFixture(t)
		for i := range volumes {
			w.discarded(owner("c1", "ns", i), "/ns/data", "")
		}
		a := owner("c1", "ns", n)
		f := w.open(nil)
		once := sync.OnceFunc(func() {
			w.loseLocks()
			w.done(restoreOf(owner("c1", "ns", volumes), "/ns/back", a.ClaimUID))
			w.now = w.now.Add(time.Minute)
			w.discarded(a, "/ns/data", "72h")
		})
		f.Step = func(step string) error {
			// What was sent already is not kept from being carried out late.
			if strings.HasPrefix(step, "stage ") && !strings.HasSuffix(step, "/"+a.Volume) && w.inTrash(a.Volume) {
				once()
			}
			return nil
		}
		_, _ = trash.Sweep(t.Context(), f, treewalk.Options{Workers: 1}) // what it could not do is due again
		f.Close()
		if w.now.After(newFixture(t).now) {
			w.there(w.slot(a.Volume) + "/file")
		}
	}
}

// TestOldBatchRemovesNothing: a Job that has waited for the lock, or for the server, may have a successor, and the volume
// may be wanted again.
func TestOldBatchRemovesNothing(t *testing.T) {
	w := newFixture(t)
	a, b := owner("c1", "ns", 1), owner("c1", "ns", 2)
	w.done(setupOf(a, "/ns/data"))
	w.write("/ns/data/file", "x")
	f := w.open(nil)
	defer f.Close()
	batchOf := func(age time.Duration) []operations.Result {
		ops := []operations.Operation{cleanupOf(a, "/ns/data"), setupOf(b, "/ns/other")}
		return batch.Run(t.Context(), f, ops, batch.Options{Received: time.Now().Add(-age)}).Results
	}
	if got := batchOf(2 * time.Minute); got[0].State != operations.NotDone || got[0].Reason != operations.Stopped || got[1].State != operations.Done {
		t.Errorf("got %+v", got)
	}
	w.there("/ns/data/file", "/ns/other")
	if got := batchOf(time.Second); got[0].State != operations.Done {
		t.Errorf("got %+v", got)
	}
	w.gone("/ns/data")
}
