package directories

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// cleanup ends a volume. Its directory goes to the trash when no other entry is at its path and a
// volume had it made; the name is free at once.
//
//	own entry   other entries       what is done
//	none        any                 nothing
//	any         retained data       entry dropped, the directory stays
//	any         in this cluster     entry.leaving; blocked, unless they are to have the directory
//	any         elsewhere           entry dropped, the directory is theirs
//	any         none, to be kept    the entry becomes the mark of retained data
//	any         none                entry.leaving, directory to the trash, entry dropped
//
// An owner that leaves counts like any other: its cleanup may have been called off, which only the
// manager knows.
//
// A run goes on from wherever the last one stopped: entry.leaving says that it had begun, and
// the record in the trash that the directory was moved.
func (b *batch) cleanup(ctx context.Context, op operations.Operation) (operations.Result, error) {
	s, err := b.owners(ctx, op)
	if err != nil {
		return operations.Result{}, err
	}
	if s.own == nil || !s.own.isOf(op.Owner) {
		return b.notOwned(ctx, op, s)
	}
	if err := b.nothingBelow(ctx, op); err != nil {
		return operations.Result{}, err
	}
	if !s.own.leaving {
		if err := b.ledger.leave(ctx, op.Path, s.own); err != nil {
			return operations.Result{}, err
		}
	}
	if len(s.others) == 0 && len(s.retained) == 0 && !op.KeepDirectory {
		return b.leaveLast(ctx, op, s.own)
	}
	if _, err := b.resumeGivingBack(ctx, op, s); err != nil {
		return operations.Result{}, err
	}
	if len(s.retained) > 0 {
		return b.leaveRetained(ctx, op, s)
	}
	if len(s.others) == 0 {
		return b.leaveUnknown(ctx, op, s.own)
	}
	return b.leaveTo(ctx, op, s)
}

// notOwned reports why there is nothing to clean up, unless the operation is a repeated one whose
// first report was lost.
func (b *batch) notOwned(ctx context.Context, op operations.Operation, s site) (operations.Result, error) {
	if err := b.ledger.prune(ctx, op.Path); err != nil { // the first run may have died before that
		return operations.Result{}, err
	}
	trashed, err := b.readRecord(ctx, op.Volume)
	if err != nil || trashed != nil && trashed.isAt(op.Path) && trashed.Owner.isOf(op.Owner) {
		return operations.Result{State: operations.Done}, err
	}
	there, err := b.isThere(ctx, op.Path)
	stay := oursFirst(append(slices.Clip(s.others), ownersOf(s.own)...), op.Cluster)
	switch {
	case err != nil:
		return operations.Result{}, err
	case there && len(s.retained) > 0:
		return stillRetained(op, s.retained[0]), nil
	case len(stay) > 0:
		return stillOwned(operations.Done, op, stay), nil
	case !there:
		return operations.Result{State: operations.Done}, nil
	}
	return operations.Result{State: operations.Done, Reason: operations.NotOwned, Message: quote(op.Path) + " stays: the ledger does not have this volume as its owner"}, nil
}

// isThere says whether anything is at a path. What cannot be walked to counts as there.
func (b *batch) isThere(ctx context.Context, p string) (bool, error) {
	info, err := b.data.look(ctx, p)
	if refusal := (*failure)(nil); errors.As(err, &refusal) {
		return true, nil
	}
	return info != nil, err
}

func ownersOf(e *entry) []*entry {
	if e == nil {
		return nil
	}
	return []*entry{e}
}

// nothingBelow holds always, unless the ledger was changed by hand.
func (b *batch) nothingBelow(ctx context.Context, op operations.Operation) error {
	at, e, err := b.ledger.below(ctx, op.Path)
	if err != nil || e == nil {
		return err
	}
	return refuse(operations.Nested, "%s stays: %s inside it belongs to %s", quote(op.Path), quote(at), e).of(e.owner())
}

// oursFirst puts the owners of the cluster first: the manager can release those.
func oursFirst(owners []*entry, cluster string) []*entry {
	var ours, theirs []*entry
	for _, owner := range owners {
		if owner.Cluster == cluster {
			ours = append(ours, owner)
		} else {
			theirs = append(theirs, owner)
		}
	}
	return append(ours, theirs...)
}

func stillOwned(state operations.State, op operations.Operation, stay []*entry) operations.Result {
	result := operations.Result{State: state, Reason: operations.StillOwned, Message: quote(op.Path) + " stays: it belongs to " + stay[0].String()}
	for _, e := range stay[:min(len(stay), maxOwners)] {
		result.Owners = append(result.Owners, e.owner())
	}
	return result
}

func stillRetained(op operations.Operation, e *entry) operations.Result {
	return operations.Result{State: operations.Done, Reason: operations.Retained, Message: quote(op.Path) + " stays: it " + e.hold()}
}

// maxOwners is how many owners a result names; the rest are named when these are gone.
const maxOwners = 8

// leaveTo leaves the directory to its other owners, with the right to take it away. An owner of
// the same cluster may be one whose volume no longer exists, which only the manager can find out.
func (b *batch) leaveTo(ctx context.Context, op operations.Operation, s site) (operations.Result, error) {
	stay := oursFirst(s.others, op.Cluster)
	if stay[0].Cluster == op.Cluster && !op.LeaveToOthers {
		return stillOwned(operations.Blocked, op, stay), nil
	}
	if err := b.handOn(ctx, op.Path, s.own, stay); err != nil {
		return operations.Result{}, err
	}
	return stillOwned(operations.Done, op, stay), b.ledger.drop(ctx, op.Path, s.own)
}

// leaveRetained leaves the directory to the data that was retained there, whoever had it made. If a
// person has removed that data, nothing stays.
func (b *batch) leaveRetained(ctx context.Context, op operations.Operation, s site) (operations.Result, error) {
	there, err := b.isThere(ctx, op.Path)
	if err != nil {
		return operations.Result{}, err
	}
	result := operations.Result{State: operations.Done}
	switch {
	case there:
		result = stillRetained(op, s.retained[0])
	case len(s.others) == 0:
		if err := b.ledger.dropAll(ctx, op.Path, s.retained); err != nil {
			return operations.Result{}, err
		}
	}
	return result, b.ledger.drop(ctx, op.Path, s.own)
}

// handOn makes one of the other owners remember that the directory was made for a volume, or the
// last of them could not take it away. It is the last of them, who is likely to leave last: when
// thousands leave together, one hands on to another once.
func (b *batch) handOn(ctx context.Context, p string, from *entry, stay []*entry) error {
	if !from.Made || slices.ContainsFunc(stay, func(e *entry) bool { return e.Made }) {
		return nil
	}
	other := *stay[len(stay)-1]
	other.Made = true
	return b.ledger.write(ctx, p, &other)
}

// leaveUnknown leaves the directory to a volume that the manager knows and the ledger does not. The
// entry becomes the mark that keeps its data.
func (b *batch) leaveUnknown(ctx context.Context, op operations.Operation, own *entry) (operations.Result, error) {
	there, err := b.isThere(ctx, op.Path)
	if err != nil {
		return operations.Result{}, err
	}
	if !there {
		return operations.Result{State: operations.Done}, b.ledger.drop(ctx, op.Path, own)
	}
	result := operations.Result{State: operations.Done, Reason: operations.StillOwned, Message: quote(op.Path) + " stays: another volume of this cluster has it, which is not being deleted"}
	return result, b.ledger.retain(ctx, op.Path, own)
}

// leaveLast ends the directory with its last owner.
func (b *batch) leaveLast(ctx context.Context, op operations.Operation, own *entry) (operations.Result, error) {
	result := operations.Result{State: operations.Done}
	if own.Made {
		if err := b.discard(ctx, op, own); err != nil {
			return operations.Result{}, err
		}
	} else {
		result.Reason = operations.NotMade
		result.Message = quote(op.Path) + " stays: it was there before it became a volume"
	}
	return result, b.ledger.drop(ctx, op.Path, own)
}

// discard moves the directory to the trash, with a record beside it that is there first: what
// has no record is never swept.
func (b *batch) discard(ctx context.Context, op operations.Operation, own *entry) error {
	slot, moved, err := b.slot(ctx, op, own)
	if err != nil || moved {
		return err
	}
	info, err := b.data.look(ctx, op.Path)
	if err != nil || info == nil {
		return err
	}
	if err := b.record(ctx, op, own, slot); err != nil {
		return err
	}
	parent, err := b.data.folder(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	b.data.forget(op.Path)
	if err := b.fs.move(ctx, "trash "+op.Path, parent, path.Base(op.Path), b.trash, slot); err != nil {
		return err
	}
	if err := b.confirm(ctx, op, slot, parent, info); err != nil {
		return err
	}
	return b.confirmLast(ctx, op, slot, own)
}

// confirm makes sure that what was moved is what was looked at. Only who can write to the
// parent can have exchanged it, and gets it back.
func (b *batch) confirm(ctx context.Context, op operations.Operation, slot string, parent *os.Root, looked os.FileInfo) error {
	moved, err := b.trash.Lstat(slot)
	if err != nil || os.SameFile(looked, moved) {
		return err
	}
	if err := b.dropRecord(ctx, slot); err != nil {
		return err
	}
	if err := renameBetween(b.trash, slot, parent, path.Base(op.Path)); err != nil {
		return changed(op.Path).because(err) // it stays in the trash, where nothing without a record is swept
	}
	return changed(op.Path)
}

// release ends an owner that exists nowhere but in the ledger. Its data was retained, or so it
// seems: the entry becomes the mark that keeps it. The right to take the directory away goes to no
// other owner.
func (b *batch) release(ctx context.Context, op operations.Operation) (operations.Result, error) {
	s, err := b.owners(ctx, op)
	if err != nil {
		return operations.Result{}, err
	}
	if s.own == nil || !s.own.isOf(op.Owner) {
		return operations.Result{State: operations.Done}, b.ledger.prune(ctx, op.Path)
	}
	if s.own.leaving {
		_, err = b.resumeGivingBack(ctx, op, s)
	} else {
		err = b.stay(ctx, op) // or a cleanup could go on from there
	}
	if err != nil {
		return operations.Result{}, err
	}
	there, err := b.isThere(ctx, op.Path)
	if err != nil {
		return operations.Result{}, err
	}
	// The cleanup of an owner that leaves may have moved the directory too late, and give it back.
	if there || slices.ContainsFunc(s.others, func(e *entry) bool { return e.leaving }) {
		return operations.Result{State: operations.Done}, b.ledger.retain(ctx, op.Path, s.own)
	}
	return operations.Result{State: operations.Done}, b.ledger.drop(ctx, op.Path, s.own)
}
