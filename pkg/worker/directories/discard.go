package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// discard moves the directory to the trash, with a record beside it that is there first: what
// has no record is never swept.
func (b *batch) discard(ctx context.Context, op operations.Operation, own *entry) (Action, error) {
	slot, moved, err := b.trash.slotFor(ctx, own.bucket, op, own)
	if err != nil || moved {
		return Trashed, err
	}
	info, err := b.data.stat(ctx, op.Path)
	if err != nil || info == nil {
		return Nothing, err
	}
	if slot, err = b.prepareSlot(ctx, op, own, slot); err != nil {
		return Nothing, err
	}
	parent, err := b.data.dir(ctx, path.Dir(op.Path))
	if err != nil {
		return Nothing, err
	}
	b.data.forget(op.Path)
	if err := b.lock.check(); err != nil {
		return Nothing, err
	}
	if err := parent.move(ctx, "trash "+op.Path, path.Base(op.Path), b.trash.dir, slot); err != nil {
		return Nothing, err
	}
	if err := b.checkMoved(ctx, op, slot, parent, info); err != nil {
		return Nothing, err
	}
	return Trashed, b.checkStillLast(ctx, op, slot, own)
}

// checkMoved makes sure that what was moved is what was inspected. Only a process that can write to the
// parent can have replaced it, and what it put there is moved back.
func (b *batch) checkMoved(ctx context.Context, op operations.Operation, slot string, parent *dir, inspected os.FileInfo) error {
	moved, err := b.trash.stat(slot)
	if err != nil || os.SameFile(inspected, moved) {
		return err
	}
	if err := b.trash.dropRecord(ctx, slot); err != nil {
		return err
	}
	// If it cannot be moved back, it stays in the trash, where nothing without a record is swept.
	return replaced(op.Path).because(b.trash.rename(slot, parent, path.Base(op.Path)))
}

// checkStillLast makes sure that no volume came to own the directory before it was moved. The server
// can carry a rename out long after it was asked to: a node that is cut off loses the lock meanwhile.
func (b *batch) checkStillLast(ctx context.Context, op operations.Operation, slot string, own *entry) error {
	only, err := b.ledger.isOnly(ctx, op.Path, own)
	if err != nil || only {
		return err
	}
	b.ledger.distrust()
	now := newLedger(b.tmp, b.data, b.ledger.tree.base)
	defer now.tree.forget("/")
	found, err := now.owners(ctx, op)
	if err != nil {
		return err
	}
	back, err := b.undoMove(ctx, op, slot, found)
	if err != nil || !back {
		return err
	}
	return refuse(operations.Changed, "%s stays: a volume came to own it while this Job was cut off from the file system; the next try decides anew", quote(op.Path))
}

// undoMove moves a directory back that an owner was using when it was moved late. What is at the path
// by now is newer, and that owner's as well.
func (b *batch) undoMove(ctx context.Context, op operations.Operation, slot string, found occupancy) (back bool, err error) {
	if used, err := b.wasInUse(found, slot); err != nil || !used {
		return false, err
	}
	info, err := b.data.stat(ctx, op.Path)
	if err != nil || info != nil {
		return false, err
	}
	parent, err := b.data.dir(ctx, path.Dir(op.Path))
	if err != nil {
		return false, err
	}
	if err := b.trash.move(ctx, "move back "+op.Path, slot, parent, path.Base(op.Path)); err != nil {
		return false, err
	}
	return true, b.trash.dropRecord(ctx, slot)
}

// wasInUse reports whether the directory that is in a slot was at its path for an entry that is there: that of
// the volume itself, which began again, or of another one.
//
//	entry of another volume             the directory was there for it
//	Found, or not Made                  yes
//	restored from this slot             yes, or is on its way there
//	restored from another slot          yes, if that slot is empty: or its own directory is still in there
//	any other                           no: it has one made, after this one was moved
func (b *batch) wasInUse(found occupancy, slot string) (bool, error) {
	if found.own != nil && found.own.state != stateLeaving {
		return true, nil
	}
	for _, e := range found.all() {
		if e.Found || !e.Made || e.RestoredFrom == slot {
			return true, nil
		}
		if e.RestoredFrom == "" {
			continue
		}
		if _, err := b.trash.stat(e.RestoredFrom); err != nil {
			return errors.Is(err, fs.ErrNotExist), ignoreMissing(err)
		}
	}
	return false, nil
}

// resumeUndo goes on for a run that died between a late move and its undoing.
func (b *batch) resumeUndo(ctx context.Context, op operations.Operation, found occupancy) (back bool, err error) {
	slot, moved, err := b.trash.slotFor(ctx, found.own.bucket, op, found.own)
	if err != nil || !moved {
		return false, err
	}
	return b.undoMove(ctx, op, slot, found)
}

// resumeUndoOfOthers does so for the cleanups of other owners that leave. Operations on other paths may
// find the same volume, and so the same slot.
func (b *batch) resumeUndoOfOthers(ctx context.Context, op operations.Operation, found occupancy) (back bool, err error) {
	b.undoing.Lock()
	defer b.undoing.Unlock()
	for i, e := range found.others {
		if e.state != stateLeaving {
			continue
		}
		op.Owner = e.owner()
		others := slices.Delete(slices.Clone(found.others), i, i+1)
		back, err = b.resumeUndo(ctx, op, occupancy{own: e, others: others, retained: found.retained})
		if err != nil || back {
			return back, err
		}
	}
	return false, nil
}

// prepareSlot makes the record of what goes to the trash, and gives its slot: before, if it is in the bucket that an
// earlier run has chosen. The name of the entry says in which bucket the next run finds the directory.
func (b *batch) prepareSlot(ctx context.Context, op operations.Operation, own *entry, before string) (slot string, err error) {
	keep, forever, err := operations.ParseKeep(op.Keep)
	if err != nil {
		return "", err
	}
	now, err := b.fs.serverNow(ctx)
	if err != nil {
		return "", err
	}
	record := trashRecord{Owner: own, Volume: op.Volume, Path: op.Path, Deleted: now, Keep: op.Keep, forever: forever}
	if !forever {
		record.Due = now.Add(keep)
	}
	bucket, err := b.makeBucket(ctx, bucketFor(record.Due, keep, forever))
	if err != nil {
		return "", err
	}
	if slot = before; bucket != own.bucket {
		if err := b.trash.dropRecord(ctx, before); err != nil {
			return "", err
		}
		if err := b.ledger.rename(ctx, op.Path, own, stateLeaving, bucket); err != nil {
			return "", err
		}
		if slot, _, err = b.trash.slotFor(ctx, bucket, op, own); err != nil {
			return "", err
		}
	}
	return slot, b.writeRecord(ctx, op, own, slot, record)
}

// makeBucket makes a bucket. On a full server, the directory goes to the trash itself instead.
func (b *batch) makeBucket(ctx context.Context, bucket string) (string, error) {
	if bucket == bucketAtOnce {
		return bucket, nil
	}
	err := b.trash.mkdir(ctx, bucket)
	if isNoSpace(err) {
		return bucketAtOnce, nil
	}
	return bucket, err
}

func (b *batch) writeRecord(ctx context.Context, op operations.Operation, own *entry, slot string, record trashRecord) error {
	err := b.tmp.write(ctx, b.trash.dir, recordName(slot), record)
	if isNoSpace(err) {
		return b.linkRecord(ctx, op, own, slot, record)
	}
	return err
}

// linkRecord makes the owner's entry the record too, by a link, because a deletion must not need
// space: only it can free some. The entry's time becomes that when the directory is due.
func (b *batch) linkRecord(ctx context.Context, op operations.Operation, own *entry, slot string, record trashRecord) error {
	d, err := b.ledger.tree.dir(ctx, op.Path)
	if err != nil {
		return err
	}
	due := record.Due
	if record.forever {
		due = neverDue()
	}
	name := recordName(slot)
	if err := b.fs.before(ctx, "link "+b.trash.at(name)); err != nil {
		return err
	}
	if err := d.Chtimes(own.fileName(), due, due); err != nil {
		return fmt.Errorf("setting the time of the owner %s: %w", own, err)
	}
	if err := ignoreMissing(b.trash.Remove(name)); err != nil { // of an earlier run, or an earlier incarnation
		return fmt.Errorf("removing %s: %w", b.trash.at(name), err)
	}
	entryFile := path.Join(path.Base(wellknown.OwnersDirectory), op.Path, own.fileName())
	if err := b.fs.state.Link(entryFile, path.Join(path.Base(wellknown.TrashDirectory), name)); err != nil {
		return fmt.Errorf("linking %s: %w", b.trash.at(name), err)
	}
	return nil
}
