package enginetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// actions gives what the operations have done, one after the other.
func (w *fixture) actions(step func(string) error, ops ...operations.Operation) []batch.Action {
	w.t.Helper()
	var all []batch.Action
	f := w.open(step)
	defer f.Close()
	ended := func(op operations.Operation, o batch.Outcome, took time.Duration) {
		if took < 0 || op.Volume == "" || o.State == "" {
			w.t.Errorf("got %+v of %+v after %s", o, op, took)
		}
		all = append(all, o.Action)
	}
	batch.Run(w.t.Context(), f, ops, batch.Options{Workers: 1, Ended: ended})
	return all
}

func (w *fixture) wantActions(step func(string) error, want []batch.Action, ops ...operations.Operation) {
	w.t.Helper()
	if got := w.actions(step, ops...); !slices.Equal(got, want) {
		w.t.Errorf("the actions are %v, want %v", got, want)
	}
}

func TestActions(t *testing.T) {
	w := newFixture(t)
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	w.wantActions(nil, []batch.Action{batch.Created, batch.Recorded, batch.Refused}, setupOf(a, "/ns/a"), setupOf(b, "/ns/a"), setupOf(c, "/ns/a/c"))
	leave := cleanupOf(a, "/ns/a")
	w.wantActions(nil, []batch.Action{batch.Blocked}, leave)
	leave.LeaveToOthers = true
	w.wantActions(nil, []batch.Action{batch.Kept}, leave)
	trash := cleanupOf(b, "/ns/a")
	trash.Keep = "1h"
	w.wantActions(nil, []batch.Action{batch.Trashed}, trash)
	w.wantActions(nil, []batch.Action{batch.Nothing}, trash)
	w.wantActions(nil, []batch.Action{batch.Restored}, restoreOf(c, "/ns/c", b.ClaimUID))
	w.wantActions(nil, []batch.Action{batch.Released}, releaseOf(c, "/ns/c"))
	w.wantActions(failAt("make /ns/new"), []batch.Action{batch.Stopped, batch.Stopped}, setupOf(a, "/ns/new"), setupOf(a, "/ns/new"))
	w.full = true
	w.wantActions(nil, []batch.Action{batch.Failed}, setupOf(a, "/ns/new"))
}

// A batch that was refused as a whole has a line for each operation, too.
func TestActionsOfARefusedBatch(t *testing.T) {
	w := newFixture(t)
	o := owner("c1", "ns", 1)
	w.wantActions(nil, []batch.Action{batch.Created}, setupOf(o, "/ns/a"))
	w.write(".efs-stunnel/tmp/leftover", "")
	w.wantActions(failAt("list /.efs-stunnel/tmp"), []batch.Action{batch.Stopped, batch.Stopped}, cleanupOf(o, "/ns/a"), setupOf(o, "/ns/a"))
}

// What is empty in the ledger and cannot be removed at the end of a phase has the operation repeated.
func TestOperationIsRepeatedIfTheLedgerCannotBePruned(t *testing.T) {
	w := newFixture(t)
	o := owner("c1", "ns", 1)
	w.done(setupOf(o, "/ns/a"))
	w.wantActions(failAt("remove /.efs-stunnel/owners/ns"), []batch.Action{batch.Trashed, batch.Stopped}, cleanupOf(o, "/ns/a"))
	f := w.open(failAt("remove /.efs-stunnel/owners/ns"))
	defer f.Close()
	if result := batch.Run(t.Context(), f, []operations.Operation{cleanupOf(o, "/ns/a")}, batch.Options{}).Results[0]; result.State != operations.NotDone {
		t.Errorf("got %+v", result)
	}
	w.done(cleanupOf(o, "/ns/a"))
	w.gone("/.efs-stunnel/owners/ns")
}

func TestOutcomeOf(t *testing.T) {
	for err, want := range map[error]batch.Action{
		&fsroot.StopError{Cause: errCrash}: batch.Stopped, fsroot.Refuse(operations.Nested, "no"): batch.Refused, errors.New("broken"): batch.Failed,
	} {
		if got := batch.OutcomeOf(err); got.Action != want || got.Result.State == "" {
			t.Errorf("%v: got %+v, want %s", err, got, want)
		}
	}
}
