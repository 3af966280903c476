package enginetest

import (
	"errors"
	"slices"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// actions gives what the operations have done, one after the other.
func (w *fixture) actions(step func(string) error, ops ...operations.Operation) []fsroot.Action {
	w.t.Helper()
	var all []fsroot.Action
	f := w.open(step)
	defer f.Close()
	f.Workers = 1
	f.OnEnd = func(ended fsroot.Ended) {
		if ended.Duration < 0 || ended.Operation.Volume == "" || ended.Result.State == "" {
			w.t.Errorf("got %+v", ended)
		}
		all = append(all, ended.Action)
	}
	batch.Run(w.t.Context(), f, ops, nil)
	return all
}

func (w *fixture) wantActions(step func(string) error, want []fsroot.Action, ops ...operations.Operation) {
	w.t.Helper()
	if got := w.actions(step, ops...); !slices.Equal(got, want) {
		w.t.Errorf("the actions are %v, want %v", got, want)
	}
}

func TestActions(t *testing.T) {
	w := newFixture(t)
	a, b, c := owner("c1", "ns", 1), owner("c1", "ns", 2), owner("c1", "ns", 3)
	w.wantActions(nil, []fsroot.Action{fsroot.Created, fsroot.Recorded, fsroot.Refused}, setupOf(a, "/ns/a"), setupOf(b, "/ns/a"), setupOf(c, "/ns/a/c"))
	leave := cleanupOf(a, "/ns/a")
	w.wantActions(nil, []fsroot.Action{fsroot.Blocked}, leave)
	leave.LeaveToOthers = true
	w.wantActions(nil, []fsroot.Action{fsroot.Kept}, leave)
	trash := cleanupOf(b, "/ns/a")
	trash.Keep = "1h"
	w.wantActions(nil, []fsroot.Action{fsroot.Trashed}, trash)
	w.wantActions(nil, []fsroot.Action{fsroot.Nothing}, trash)
	w.wantActions(nil, []fsroot.Action{fsroot.Restored}, restoreOf(c, "/ns/c", b.ClaimUID))
	w.wantActions(nil, []fsroot.Action{fsroot.Released}, releaseOf(c, "/ns/c"))
	w.wantActions(failAt("make /ns/new"), []fsroot.Action{fsroot.Stopped, fsroot.Stopped}, setupOf(a, "/ns/new"), setupOf(a, "/ns/new"))
	w.full = true
	w.wantActions(nil, []fsroot.Action{fsroot.Failed}, setupOf(a, "/ns/new"))
}

// A batch that was refused as a whole has a line for each operation, too.
func TestActionsOfARefusedBatch(t *testing.T) {
	w := newFixture(t)
	o := owner("c1", "ns", 1)
	w.wantActions(nil, []fsroot.Action{fsroot.Created}, setupOf(o, "/ns/a"))
	w.write(".efs-stunnel/tmp/leftover", "")
	w.wantActions(failAt("list /.efs-stunnel/tmp"), []fsroot.Action{fsroot.Stopped, fsroot.Stopped}, cleanupOf(o, "/ns/a"), setupOf(o, "/ns/a"))
}

// What is empty in the ledger and cannot be removed at the end of a phase has the operation repeated.
func TestOperationIsRepeatedIfTheLedgerCannotBePruned(t *testing.T) {
	w := newFixture(t)
	o := owner("c1", "ns", 1)
	w.done(setupOf(o, "/ns/a"))
	w.wantActions(failAt("remove /.efs-stunnel/owners/ns"), []fsroot.Action{fsroot.Trashed, fsroot.Stopped}, cleanupOf(o, "/ns/a"))
	f := w.open(failAt("remove /.efs-stunnel/owners/ns"))
	defer f.Close()
	if result := batch.Run(t.Context(), f, []operations.Operation{cleanupOf(o, "/ns/a")}, nil).Results[0]; result.State != operations.NotDone {
		t.Errorf("got %+v", result)
	}
	w.done(cleanupOf(o, "/ns/a"))
	w.gone("/.efs-stunnel/owners/ns")
}

func TestOutcomeOf(t *testing.T) {
	for err, want := range map[error]fsroot.Action{
		&fsroot.StopError{Cause: errCrash}: fsroot.Stopped, fsroot.Refuse(operations.Nested, "no"): fsroot.Refused, errors.New("broken"): fsroot.Failed,
	} {
		if got := batch.OutcomeOf(err); got.Action != want || got.Result.State == "" {
			t.Errorf("%v: got %+v, want %s", err, got, want)
		}
	}
}
