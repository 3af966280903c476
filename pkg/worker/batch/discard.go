package batch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// discard moves the directory to the trash after its record: what has no record is never swept.
func (b *Batch) discard(ctx context.Context, op operations.Operation, own *ledger.Entry) (Action, error) {
	slot, moved, err := b.Trash.SlotFor(ctx, own.Bucket, op, own)
	if err != nil || moved {
		return Trashed, err
	}
	info, err := b.Data.Inspect(ctx, op.Path)
	if err != nil || info == nil {
		return Nothing, err
	}
	if slot, err = b.Trash.Prepare(ctx, b.tmp, b.Ledger, op, own, slot); err != nil {
		return Nothing, err
	}
	parent, err := b.Data.Dir(ctx, path.Dir(op.Path))
	if err != nil {
		return Nothing, err
	}
	b.Data.Forget(op.Path)
	if err := b.lock.Check(); err != nil {
		return Nothing, err
	}
	if err := parent.MoveTo(ctx, "trash "+op.Path, path.Base(op.Path), b.Trash.Dir, slot); err != nil {
		return Nothing, err
	}
	if err := b.checkMoved(ctx, op, slot, parent, info); err != nil {
		return Nothing, err
	}
	return Trashed, b.checkStillLast(ctx, op, slot, own)
}

// checkMoved makes sure that what was moved is what was inspected. Only a process that can write to the
// parent can have replaced it, and what it put there is moved back.
func (b *Batch) checkMoved(ctx context.Context, op operations.Operation, slot string, parent *fsroot.Dir, inspected os.FileInfo) error {
	moved, err := b.Trash.Inspect(slot)
	if err != nil || os.SameFile(inspected, moved) {
		return err
	}
	if err := b.Trash.DropRecord(ctx, slot); err != nil {
		return err
	}
	// If it cannot be moved back, it stays in the trash, where nothing without a record is swept.
	return fsroot.Replaced(op.Path).Because(b.Trash.RenameTo(slot, parent, path.Base(op.Path)))
}

// checkStillLast makes sure that no volume came to own the directory before it was moved. The server
// can carry a rename out long after it was asked to: a node that is cut off loses the lock meanwhile.
func (b *Batch) checkStillLast(ctx context.Context, op operations.Operation, slot string, own *ledger.Entry) error {
	only, err := b.Ledger.IsOnly(ctx, op.Path, own)
	if err != nil || only {
		return err
	}
	b.outdated.Store(true)
	now := ledger.NewLedger(b.tmp, b.Data, b.Ledger.Tree.Base)
	defer now.Tree.Forget("/")
	found, err := now.Owners(ctx, op)
	if err != nil {
		return err
	}
	back, err := b.undoMove(ctx, op, slot, found)
	if err != nil || !back {
		return err
	}
	return fsroot.Refuse(operations.Changed, "%s stays: a volume came to own it while this Job was cut off from the file system; the next try decides anew", fsroot.Quote(op.Path))
}

// undoMove moves a directory back that an owner was using when it was moved late. What is at the path
// by now is newer, and that owner's as well.
func (b *Batch) undoMove(ctx context.Context, op operations.Operation, slot string, found ledger.Occupancy) (back bool, err error) {
	if used, err := b.wasInUse(found, slot); err != nil || !used {
		return false, err
	}
	info, err := b.Data.Inspect(ctx, op.Path)
	if err != nil || info != nil {
		return false, err
	}
	parent, err := b.Data.Dir(ctx, path.Dir(op.Path))
	if err != nil {
		return false, err
	}
	if err := b.Trash.MoveTo(ctx, "move back "+op.Path, slot, parent, path.Base(op.Path)); err != nil {
		return false, err
	}
	return true, b.Trash.DropRecord(ctx, slot)
}

// wasInUse reports whether the directory that is in a slot was at its path for an entry that is there: that of
// the volume itself, which began again, or of another one.
//
//	entry of another volume             the directory was there for it
//	Found, or not Made                  yes
//	restored from this slot             yes, or is on its way there
//	restored from another slot          yes, if that slot is empty: or its own directory is still in there
//	any other                           no: it has one made, after this one was moved
func (b *Batch) wasInUse(found ledger.Occupancy, slot string) (bool, error) {
	if found.Own != nil && found.Own.State != ledger.StateLeaving {
		return true, nil
	}
	for _, e := range found.All() {
		if e.Found || !e.Made || e.RestoredFrom == slot {
			return true, nil
		}
		if e.RestoredFrom == "" {
			continue
		}
		if _, err := b.Trash.Inspect(e.RestoredFrom); err != nil {
			return errors.Is(err, fs.ErrNotExist), fsroot.IgnoreMissing(err)
		}
	}
	return false, nil
}

// resumeUndo goes on for a run that died between a late move and its undoing.
func (b *Batch) resumeUndo(ctx context.Context, op operations.Operation, found ledger.Occupancy) (back bool, err error) {
	slot, moved, err := b.Trash.SlotFor(ctx, found.Own.Bucket, op, found.Own)
	if err != nil || !moved {
		return false, err
	}
	return b.undoMove(ctx, op, slot, found)
}

// resumeUndoOfOthers does so for other owners that leave. Operations on other paths may find the same slots.
func (b *Batch) resumeUndoOfOthers(ctx context.Context, op operations.Operation, found ledger.Occupancy) (back bool, err error) {
	b.undoing.Lock()
	defer b.undoing.Unlock()
	for i, e := range found.Others {
		if e.State != ledger.StateLeaving {
			continue
		}
		op.Owner = e.Owner()
		others := slices.Delete(slices.Clone(found.Others), i, i+1)
		back, err = b.resumeUndo(ctx, op, ledger.Occupancy{Own: e, Others: others, Retained: found.Retained})
		if err != nil || back {
			return back, err
		}
	}
	return false, nil
}
