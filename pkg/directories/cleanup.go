package directories

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
)

// cleanup ends a volume. Its directory goes to the trash when nobody else owns it and a volume
// had it made; the name is free at once.
//
//	own entry   others              what is done
//	none        any                 nothing
//	any         in this cluster     entry.leaving; blocked, unless they are to have the directory
//	any         elsewhere           entry dropped, the directory is theirs
//	any         none, or leaving    entry.leaving, directory to the trash, entry dropped
//
// A run goes on from wherever the last one stopped: entry.leaving says that it had begun, and
// the record in the trash that the directory was moved.
func (b *batch) cleanup(ctx context.Context, op Operation) (Result, error) {
	s, err := b.owners(ctx, op)
	if err != nil {
		return Result{}, err
	}
	if s.own == nil || !s.own.isOf(op.Owner) {
		return b.notOwned(ctx, op, s)
	}
	if err := b.nothingBelow(ctx, op); err != nil {
		return Result{}, err
	}
	if !s.own.leaving {
		if err := b.ledger.leave(ctx, op.Path, s.own); err != nil {
			return Result{}, err
		}
	}
	if stay := staying(s.others, op.Cluster); len(stay) > 0 {
		if err := b.resumeGivingBack(ctx, op, s); err != nil {
			return Result{}, err
		}
		return b.leaveTo(ctx, op, s, stay)
	}
	return b.leaveLast(ctx, op, s)
}

// notOwned tells the asker why there is nothing to clean, unless the operation is a repeated one
// whose first report was lost.
func (b *batch) notOwned(ctx context.Context, op Operation, s site) (Result, error) {
	if err := b.ledger.prune(ctx, op.Path); err != nil { // the first run may have died before that
		return Result{}, err
	}
	trashed, err := readRecord(b.trash, op.Volume)
	if err != nil || trashed != nil && trashed.Path == op.Path && trashed.Owner.isOf(op.Owner) {
		return Result{State: Done}, err
	}
	stay := staying(append(slices.Clip(s.others), ownersOf(s.own)...), op.Cluster)
	if len(stay) > 0 {
		return stillOwned(Done, op, stay), nil
	}
	info, err := b.data.look(ctx, op.Path)
	if refusal := (*failure)(nil); err != nil && !errors.As(err, &refusal) {
		return Result{}, err
	}
	if info == nil && err == nil {
		return Result{State: Done}, nil
	}
	return Result{State: Done, Reason: NotOwned, Message: quote(op.Path) + " stays: the ledger does not have this volume as its owner"}, nil
}

func ownersOf(e *entry) []*entry {
	if e == nil {
		return nil
	}
	return []*entry{e}
}

// nothingBelow holds always, unless the ledger was changed by hand.
func (b *batch) nothingBelow(ctx context.Context, op Operation) error {
	at, e, err := b.ledger.below(ctx, op.Path)
	if err != nil || e == nil {
		return err
	}
	return refuse(Nested, "%s stays: %s inside it belongs to %s", quote(op.Path), quote(at), e).of(e.owner())
}

// staying are the owners that do not leave, those of the cluster first: those the asker can do
// something about.
func staying(others []*entry, cluster string) []*entry {
	var ours, theirs []*entry
	for _, other := range others {
		switch {
		case other.leaving:
		case other.Cluster == cluster:
			ours = append(ours, other)
		default:
			theirs = append(theirs, other)
		}
	}
	return append(ours, theirs...)
}

func stillOwned(state State, op Operation, stay []*entry) Result {
	result := Result{State: state, Reason: StillOwned, Message: quote(op.Path) + " stays: it belongs to " + stay[0].String()}
	for _, e := range stay[:min(len(stay), maxOwners)] {
		result.Owners = append(result.Owners, e.owner())
	}
	return result
}

// maxOwners is how many owners a result names; the rest are named when these are gone.
const maxOwners = 8

// leaveTo leaves the directory to its other owners, with the right to take it away. An owner of
// the same cluster may be one that is only remembered, which the asker alone can find out.
func (b *batch) leaveTo(ctx context.Context, op Operation, s site, stay []*entry) (Result, error) {
	if stay[0].Cluster == op.Cluster && !op.LeaveToOthers {
		return stillOwned(Blocked, op, stay), nil
	}
	if err := b.handOn(ctx, op.Path, s.own, stay); err != nil {
		return Result{}, err
	}
	return stillOwned(Done, op, stay), b.ledger.drop(ctx, op.Path, s.own)
}

// handOn makes one of those who stay remember that the directory was made for a volume, or the
// last of them could not take it away. One who leaves already is none of them: it came to data that
// a released volume was to keep.
func (b *batch) handOn(ctx context.Context, p string, from *entry, stay []*entry) error {
	if !from.Made || slices.ContainsFunc(stay, func(e *entry) bool { return e.Made }) {
		return nil
	}
	heir := *stay[0]
	heir.Made = true
	return b.ledger.write(ctx, p, &heir)
}

// leaveLast ends the directory with its last owner.
func (b *batch) leaveLast(ctx context.Context, op Operation, s site) (Result, error) {
	result := Result{State: Done}
	if s.own.Made || slices.ContainsFunc(s.others, func(e *entry) bool { return e.Made }) {
		if err := b.discard(ctx, op, s.own); err != nil {
			return Result{}, err
		}
	} else {
		result.Reason = NotMade
		result.Message = quote(op.Path) + " stays: it was there before it became a volume"
	}
	return result, b.ledger.drop(ctx, op.Path, s.own)
}

// discard moves the directory to the trash, with a record beside it that is there first: what
// has no record is never swept.
func (b *batch) discard(ctx context.Context, op Operation, own *entry) error {
	slot, moved, err := b.slot(op, own)
	if err != nil || moved {
		return err
	}
	info, err := b.data.look(ctx, op.Path)
	if err != nil || info == nil {
		return err
	}
	if err := b.writeRecord(ctx, slot, trashRecord{Owner: own, Volume: op.Volume, Path: op.Path, Deleted: b.fs.now().UTC().Round(0), Keep: op.Keep}); err != nil {
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
func (b *batch) confirm(ctx context.Context, op Operation, slot string, parent *os.Root, looked os.FileInfo) error {
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

// release drops the volume's entry and touches nothing else.
func (b *batch) release(ctx context.Context, op Operation) (Result, error) {
	s, err := b.owners(ctx, op)
	if err != nil {
		return Result{}, err
	}
	if s.own == nil || !s.own.isOf(op.Owner) {
		return Result{State: Done}, b.ledger.prune(ctx, op.Path)
	}
	if stay := staying(s.others, op.Cluster); len(stay) > 0 {
		if err := b.handOn(ctx, op.Path, s.own, stay); err != nil {
			return Result{}, err
		}
	}
	if !s.own.leaving {
		if err := b.stay(ctx, op); err != nil { // or a cleanup could go on from there
			return Result{}, err
		}
	}
	return Result{State: Done}, b.ledger.drop(ctx, op.Path, s.own)
}
