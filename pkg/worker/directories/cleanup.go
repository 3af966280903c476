package directories

import (
	"context"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// maxOwners is how many owners a result names; the rest are named when these are gone.
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
func (b *batch) cleanup(ctx context.Context, op operations.Operation) (outcome, error) {
	found, err := b.ledger.owners(ctx, op)
	if err != nil {
		return outcome{}, err
	}
	if found.own == nil || !found.own.isOf(op.Owner) {
		return b.cleanupWithoutEntry(ctx, op, found)
	}
	// Only an edit of the ledger by hand leads to an owner inside.
	if at, e, err := b.ledger.below(ctx, op.Path); err != nil {
		return outcome{}, err
	} else if e != nil {
		return outcome{}, refuse(operations.Nested, "%s stays: %s inside it belongs to %s", quote(op.Path), quote(at), e).of(e.owner())
	}
	if err := b.give(ctx, op, &found); err != nil {
		return outcome{}, err
	}
	if found.own.state != stateLeaving {
		if err := b.ledger.setState(ctx, op.Path, found.own, stateLeaving); err != nil {
			return outcome{}, err
		}
	}
	if len(found.all()) == 0 && !op.KeepDirectory {
		return b.cleanupLast(ctx, op, found.own)
	}
	if _, err := b.resumeUndo(ctx, op, found); err != nil {
		return outcome{}, err
	}
	switch {
	case len(found.retained) > 0:
		return b.leaveToRetained(ctx, op, found)
	case len(found.others) == 0:
		return b.leaveToUnlisted(ctx, op, found.own)
	default:
		return b.leaveToOthers(ctx, op, found)
	}
}

// cleanupWithoutEntry reports why there is nothing to clean up, unless the operation is a repeated one
// whose first report was lost.
func (b *batch) cleanupWithoutEntry(ctx context.Context, op operations.Operation, found occupancy) (outcome, error) {
	if err := b.ledger.pruneOwn(ctx, op.Path); err != nil { // the first run may have died before that
		return outcome{}, err
	}
	done := doneBy(Nothing, operations.Result{})
	exists, err := b.data.exists(ctx, op.Path)
	if err != nil || !exists && len(found.others) == 0 && found.own == nil {
		return done, err
	}
	trashed, err := b.wasTrashed(ctx, op)
	if err != nil || trashed {
		return done, err
	}
	owners := slices.Clone(found.others)
	if found.own != nil {
		owners = append(owners, found.own)
	}
	switch {
	case exists && len(found.retained) > 0:
		return keptForRetained(op, found), nil
	case len(owners) > 0:
		return keptForOwners(op, ownClusterFirst(owners, op.Cluster)), nil
	case exists:
		return kept(op, operations.NotOwned, "the ledger does not have this volume as its owner"), nil
	}
	return done, nil
}

// wasTrashed reports whether an earlier run of a cleanup has moved the directory to the trash.
func (b *batch) wasTrashed(ctx context.Context, op operations.Operation) (was bool, err error) {
	slots, err := b.earlierSlots(ctx)
	if err != nil {
		return false, err
	}
	err = b.trash.recordsOf(ctx, slots[op.Volume], func(r *trashRecord) { was = was || r.isAt(op.Path) && r.Owner.isOf(op.Owner) })
	return was, err
}

// earlierSlots lists the trash once for a batch.
func (b *batch) earlierSlots(ctx context.Context) (slots map[string][]string, err error) {
	b.listing.Lock()
	defer b.listing.Unlock()
	if b.earlier == nil {
		b.earlier, err = b.trash.slotsByVolume(ctx)
	}
	return b.earlier, err
}

// kept is the result of a cleanup that is done and leaves the directory.
func kept(op operations.Operation, reason operations.Reason, why string) outcome {
	return doneBy(Kept, operations.Result{Reason: reason, Message: quote(op.Path) + " stays: " + why})
}

func keptForRetained(op operations.Operation, found occupancy) outcome {
	isOwn := func(e *entry) bool { return e.isOf(op.Owner) && !e.Made }
	if slices.ContainsFunc(found.retained, isOwn) { // left by an earlier run of this cleanup
		return kept(op, operations.NotMade, notMade)
	}
	return kept(op, operations.Retained, "it "+found.retained[0].relation())
}

func blockedBy(op operations.Operation, owners []*entry) outcome {
	result := keptForOwners(op, owners)
	result.State, result.action = operations.Blocked, Blocked
	return result
}

func keptForOwners(op operations.Operation, owners []*entry) outcome {
	result := kept(op, operations.StillOwned, "it belongs to "+owners[0].String())
	for _, e := range owners[:min(len(owners), maxOwners)] {
		result.Owners = append(result.Owners, e.owner())
	}
	return result
}

// ownClusterFirst sorts the owners of the cluster to the front: the manager can release those.
func ownClusterFirst(owners []*entry, cluster string) []*entry {
	rank := func(e *entry) int {
		if e.Cluster == cluster {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(owners), func(a, b *entry) int { return rank(a) - rank(b) })
}

// leaveToOthers leaves the directory to its other owners, with the right to remove it. An owner of
// the same cluster may be one whose volume no longer exists, which only the manager can find out.
func (b *batch) leaveToOthers(ctx context.Context, op operations.Operation, found occupancy) (outcome, error) {
	others := ownClusterFirst(found.others, op.Cluster)
	if others[0].Cluster == op.Cluster && !op.LeaveToOthers {
		return blockedBy(op, others), nil
	}
	if err := b.passOnMade(ctx, op.Path, found.own, others); err != nil {
		return outcome{}, err
	}
	return keptForOwners(op, others), b.ledger.drop(ctx, op.Path, found.own)
}

// passOnMade writes into the entry of one other owner that the directory was made for a volume, or the
// last of them could not remove it. It is the last entry, whose owner is likely to leave last: when
// thousands leave together, few entries are written.
func (b *batch) passOnMade(ctx context.Context, p string, from *entry, others []*entry) error {
	if !from.Made || slices.ContainsFunc(others, func(e *entry) bool { return e.Made }) {
		return nil
	}
	last := *others[len(others)-1]
	last.Made = true
	return b.ledger.write(ctx, p, &last)
}

// leaveToRetained leaves the directory to the data that was retained there, whoever had it made. If a
// person has removed that data, nothing stays.
func (b *batch) leaveToRetained(ctx context.Context, op operations.Operation, found occupancy) (outcome, error) {
	exists, err := b.data.exists(ctx, op.Path)
	if err != nil {
		return outcome{}, err
	}
	if exists {
		return keptForRetained(op, found), b.ledger.drop(ctx, op.Path, found.own)
	}
	dropped := []*entry{found.own}
	if len(found.others) == 0 {
		dropped = append(found.retained, found.own)
	}
	return doneBy(Nothing, operations.Result{}), b.ledger.drop(ctx, op.Path, dropped...)
}

// leaveToUnlisted leaves the directory to a volume that the manager knows and the ledger does not.
func (b *batch) leaveToUnlisted(ctx context.Context, op operations.Operation, own *entry) (outcome, error) {
	return b.leaveMarked(ctx, op, own, kept(op, operations.StillOwned, "another volume of this cluster has it, which is not being deleted"))
}

// leaveMarked leaves the directory in place. The entry becomes the mark that keeps its data: without one, the
// next claim of the path would get it, whatever namespace it is in.
func (b *batch) leaveMarked(ctx context.Context, op operations.Operation, own *entry, result outcome) (outcome, error) {
	exists, err := b.data.exists(ctx, op.Path)
	if err != nil {
		return outcome{}, err
	}
	if !exists {
		return doneBy(Nothing, operations.Result{}), b.ledger.drop(ctx, op.Path, own)
	}
	return result, b.ledger.setState(ctx, op.Path, own, stateRetained)
}

const notMade = "it was there before it became a volume"

// cleanupLast ends the directory with its last owner.
func (b *batch) cleanupLast(ctx context.Context, op operations.Operation, own *entry) (outcome, error) {
	if !own.Made {
		return b.leaveMarked(ctx, op, own, kept(op, operations.NotMade, notMade))
	}
	action, err := b.discard(ctx, op, own)
	if err != nil {
		return outcome{}, err
	}
	return doneBy(action, operations.Result{}), b.ledger.drop(ctx, op.Path, own)
}

// release ends an owner that exists nowhere but in the ledger. Its data was retained, or so it
// seems: the entry becomes the mark that keeps it. The right to remove the directory goes to no
// other owner.
func (b *batch) release(ctx context.Context, op operations.Operation) (outcome, error) {
	done := doneBy(Released, operations.Result{})
	found, err := b.ledger.owners(ctx, op)
	if err != nil {
		return outcome{}, err
	}
	if found.own == nil || !found.own.isOf(op.Owner) {
		return done, b.ledger.pruneOwn(ctx, op.Path)
	}
	if found.own.state == stateLeaving {
		_, err = b.resumeUndo(ctx, op, found)
	} else {
		err = b.cancelCleanup(ctx, op, found) // or one could go on from there
	}
	if err != nil {
		return outcome{}, err
	}
	exists, err := b.data.exists(ctx, op.Path)
	if err != nil {
		return outcome{}, err
	}
	// The cleanup of an owner that leaves may have moved the directory too late, and move it back.
	if exists || slices.ContainsFunc(found.others, func(e *entry) bool { return e.state == stateLeaving }) {
		return done, b.ledger.setState(ctx, op.Path, found.own, stateRetained)
	}
	return done, b.ledger.drop(ctx, op.Path, found.own)
}
