package batch

import (
	"context"
	"slices"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
)

// maxOwners are named in a result; the rest when these are gone.
const maxOwners = 8

// cleanup ends a volume. Its directory goes to the trash when no other entry is at its path and it
// was made for a volume; the name is free at once.
//
//	own entry   other entries       what is done
//	none        any                 nothing
//	any         retained data       entry dropped, the directory stays
//	any         in this cluster     entry.leaving; blocked, unless they are to have the directory
//	any         elsewhere           entry dropped, the directory is theirs
//	any         none, to be kept    the entry becomes the mark of retained data; so does
//	                                one of a directory that was not made for a volume
//	any         none                entry.leaving, directory to the trash, entry dropped
//
// An owner that leaves counts like any other: its cleanup may have been called off, which only the
// manager knows.
//
// A run goes on from wherever the last one stopped: entry.leaving says that it had begun, and
// the record in the trash that the directory was moved.
func (b *Batch) cleanup(ctx context.Context, op operations.Operation) (Outcome, error) {
	found, err := b.Ledger.Owners(ctx, op)
	if err != nil {
		return Outcome{}, err
	}
	if found.Own == nil || !found.Own.IsOf(op.Owner) {
		return b.cleanupWithoutEntry(ctx, op, found)
	}
	// Only an edit of the ledger by hand leads to an owner inside.
	if at, e, err := b.Ledger.Below(ctx, op.Path); err != nil {
		return Outcome{}, err
	} else if e != nil {
		return Outcome{}, fsroot.Refuse(operations.Nested, "%s stays: %s inside it belongs to %s", fsroot.Quote(op.Path), fsroot.Quote(at), e).Of(e.Owner())
	}
	if err := b.give(ctx, op, &found); err != nil {
		return Outcome{}, err
	}
	if found.Own.State != ledger.StateLeaving {
		if err := b.Ledger.SetState(ctx, op.Path, found.Own, ledger.StateLeaving); err != nil {
			return Outcome{}, err
		}
	}
	if len(found.All()) == 0 && !op.KeepDirectory {
		return b.cleanupLast(ctx, op, found.Own)
	}
	if _, err := b.resumeUndo(ctx, op, found); err != nil {
		return Outcome{}, err
	}
	switch {
	case len(found.Retained) > 0:
		return b.leaveToRetained(ctx, op, found)
	case len(found.Others) == 0: // the manager knows a volume that the ledger does not
		return b.leaveMarked(ctx, op, found.Own, kept(op, operations.StillOwned, unlisted))
	default:
		return b.leaveToOthers(ctx, op, found)
	}
}

// cleanupWithoutEntry reports why there is nothing to clean up, unless it repeats a cleanup whose report was lost.
func (b *Batch) cleanupWithoutEntry(ctx context.Context, op operations.Operation, found ledger.Occupancy) (Outcome, error) {
	if err := b.Ledger.PruneOwn(ctx, op.Path); err != nil { // the first run may have died before that
		return Outcome{}, err
	}
	done := DoneBy(Nothing, operations.Result{})
	exists, err := b.Data.Exists(ctx, op.Path)
	if err != nil || !exists && len(found.Others) == 0 && found.Own == nil {
		return done, err
	}
	trashed, err := b.wasTrashed(ctx, op)
	if err != nil || trashed {
		return done, err
	}
	owners := slices.Clone(found.Others)
	if found.Own != nil {
		owners = append(owners, found.Own)
	}
	switch {
	case exists && len(found.Retained) > 0:
		return keptForRetained(op, found), nil
	case len(owners) > 0:
		return keptForOwners(op, ownClusterFirst(owners, op.Cluster)), nil
	case exists:
		return kept(op, operations.NotOwned, "the ledger does not have this volume as its owner"), nil
	}
	return done, nil
}

// wasTrashed reports whether an earlier run of a cleanup has moved the directory to the trash.
func (b *Batch) wasTrashed(ctx context.Context, op operations.Operation) (was bool, err error) {
	slots, err := b.slots()
	if err != nil {
		return false, err
	}
	err = b.Trash.RecordsOf(ctx, slots[op.Volume], func(r *trash.Record) { was = was || r.IsAt(op.Path) && r.Owner.IsOf(op.Owner) })
	return was, err
}

// beginPhase has the trash listed at most once in a phase, with what the phases before have moved there.
func (b *Batch) beginPhase(ctx context.Context) {
	b.slots = sync.OnceValues(func() (map[string][]string, error) { return b.Trash.SlotsByVolume(ctx) })
}

func kept(op operations.Operation, reason operations.Reason, why string) Outcome {
	return DoneBy(Kept, operations.Result{Reason: reason, Message: fsroot.Quote(op.Path) + " stays: " + why})
}

func keptForRetained(op operations.Operation, found ledger.Occupancy) Outcome {
	isOwn := func(e *ledger.Entry) bool { return e.IsOf(op.Owner) && !e.Made }
	if slices.ContainsFunc(found.Retained, isOwn) { // left by an earlier run of this cleanup
		return kept(op, operations.NotMade, notMade)
	}
	return kept(op, operations.Retained, "it "+found.Retained[0].Relation())
}

func keptForOwners(op operations.Operation, owners []*ledger.Entry) Outcome {
	result := kept(op, operations.StillOwned, "it belongs to "+owners[0].String())
	for _, e := range owners[:min(len(owners), maxOwners)] {
		result.Owners = append(result.Owners, e.Owner())
	}
	return result
}

// ownClusterFirst sorts the owners of the cluster to the front: the manager can release those.
func ownClusterFirst(owners []*ledger.Entry, cluster string) []*ledger.Entry {
	rank := func(e *ledger.Entry) int {
		if e.Cluster == cluster {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(owners), func(a, b *ledger.Entry) int { return rank(a) - rank(b) })
}

// leaveToOthers leaves the directory to its other owners, with the right to remove it. An owner of
// the same cluster may be one whose volume no longer exists, which only the manager can find out.
func (b *Batch) leaveToOthers(ctx context.Context, op operations.Operation, found ledger.Occupancy) (Outcome, error) {
	others := ownClusterFirst(found.Others, op.Cluster)
	result := keptForOwners(op, others)
	if others[0].Cluster == op.Cluster && !op.LeaveToOthers {
		result.State, result.Action = operations.Blocked, Blocked
		return result, nil
	}
	if err := b.passOnMade(ctx, op.Path, found.Own, others); err != nil {
		return Outcome{}, err
	}
	return result, b.Ledger.Drop(ctx, op.Path, found.Own)
}

// passOnMade gives another owner the right to remove the directory, which the last one needs. The last entry's owner
// is likely to leave last: so few entries are written when thousands leave together.
func (b *Batch) passOnMade(ctx context.Context, p string, from *ledger.Entry, others []*ledger.Entry) error {
	if !from.Made || slices.ContainsFunc(others, func(e *ledger.Entry) bool { return e.Made }) {
		return nil
	}
	last := *others[len(others)-1]
	last.Made = true
	return b.Ledger.Write(ctx, p, &last)
}

// leaveToRetained leaves the directory to retained data, whoever had it made, unless a person has removed that.
func (b *Batch) leaveToRetained(ctx context.Context, op operations.Operation, found ledger.Occupancy) (Outcome, error) {
	exists, err := b.Data.Exists(ctx, op.Path)
	if err != nil {
		return Outcome{}, err
	}
	if exists {
		return keptForRetained(op, found), b.Ledger.Drop(ctx, op.Path, found.Own)
	}
	dropped := []*ledger.Entry{found.Own}
	if len(found.Others) == 0 {
		dropped = append(found.Retained, found.Own)
	}
	return DoneBy(Nothing, operations.Result{}), b.Ledger.Drop(ctx, op.Path, dropped...)
}

// leaveMarked leaves the directory in place. The entry becomes the mark that keeps its data: without one, the
// next claim of the path would get it, whatever namespace it is in.
func (b *Batch) leaveMarked(ctx context.Context, op operations.Operation, own *ledger.Entry, result Outcome) (Outcome, error) {
	exists, err := b.Data.Exists(ctx, op.Path)
	if err != nil {
		return Outcome{}, err
	}
	if !exists {
		return DoneBy(Nothing, operations.Result{}), b.Ledger.Drop(ctx, op.Path, own)
	}
	return result, b.Ledger.SetState(ctx, op.Path, own, ledger.StateRetained)
}

const (
	notMade  = "it was there before it became a volume"
	unlisted = "another volume of this cluster has it, which is not being deleted"
)

func (b *Batch) cleanupLast(ctx context.Context, op operations.Operation, own *ledger.Entry) (Outcome, error) {
	if !own.Made {
		return b.leaveMarked(ctx, op, own, kept(op, operations.NotMade, notMade))
	}
	action, err := b.discard(ctx, op, own)
	if err != nil {
		return Outcome{}, err
	}
	return DoneBy(action, operations.Result{}), b.Ledger.Drop(ctx, op.Path, own)
}

// release ends an owner that exists only in the ledger. Its data seems to be retained, so the entry becomes the mark
// that keeps it, and the right to remove the directory goes to no other owner.
func (b *Batch) release(ctx context.Context, op operations.Operation) (Outcome, error) {
	done := DoneBy(Released, operations.Result{})
	found, err := b.Ledger.Owners(ctx, op)
	if err != nil {
		return Outcome{}, err
	}
	if found.Own == nil || !found.Own.IsOf(op.Owner) {
		return done, b.Ledger.PruneOwn(ctx, op.Path)
	}
	if found.Own.State == ledger.StateLeaving {
		_, err = b.resumeUndo(ctx, op, found)
	} else {
		err = b.cancelCleanup(ctx, op, found) // or one could go on from there
	}
	if err != nil {
		return Outcome{}, err
	}
	exists, err := b.Data.Exists(ctx, op.Path)
	if err != nil {
		return Outcome{}, err
	}
	// The cleanup of an owner that leaves may have moved the directory too late, and move it back.
	if exists || slices.ContainsFunc(found.Others, func(e *ledger.Entry) bool { return e.State == ledger.StateLeaving }) {
		return done, b.Ledger.SetState(ctx, op.Path, found.Own, ledger.StateRetained)
	}
	return done, b.Ledger.Drop(ctx, op.Path, found.Own)
}

// abandon ends a clone whose claim is deleted. The copy goes where sweeps remove everything, whether it is
// complete or not; if it was published, as the directory of any volume that is cleaned up.
func (b *Batch) abandon(ctx context.Context, op operations.Operation) (Outcome, error) {
	if _, err := b.Trash.DiscardCopy(ctx, op.Volume, func(time.Time) bool { return true }); err != nil {
		return Outcome{}, err
	}
	op.Kind, op.Abandon, op.LeaveToOthers = operations.Cleanup, false, true
	return b.cleanup(ctx, op)
}
