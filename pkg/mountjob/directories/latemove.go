package directories

import (
	"context"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// confirmLast makes sure that nobody came to own the directory before it was moved. The server can
// carry a rename out long after it was asked to: a node that is cut off loses the lock meanwhile.
func (b *batch) confirmLast(ctx context.Context, op operations.Operation, slot string, own *entry) error {
	alone, err := b.ledger.alone(ctx, op.Path, own)
	if err != nil || alone {
		return err
	}
	b.ledger.forget()
	s, err := b.owners(ctx, op)
	if err != nil {
		return err
	}
	given, err := b.giveBack(ctx, op, slot, s)
	if err != nil || !given {
		return err
	}
	return refuse(operations.Changed, "%s stays: somebody came to own it while this Job was cut off from the file system; the next try decides anew", quote(op.Path))
}

// resumeGivingBack goes on for a run that died between a late move and its undoing.
func (b *batch) resumeGivingBack(ctx context.Context, op operations.Operation, s site) (given bool, err error) {
	slot, moved, err := b.slot(ctx, op, s.own)
	if err != nil || !moved {
		return false, err
	}
	return b.giveBack(ctx, op, slot, s)
}

// resumeOthers does so for other owners that leave.
func (b *batch) resumeOthers(ctx context.Context, op operations.Operation, s site) (given bool, err error) {
	for i, e := range s.others {
		if !e.leaving {
			continue
		}
		op.Owner = e.owner()
		others := slices.Delete(slices.Clone(s.others), i, i+1)
		given, err = b.resumeGivingBack(ctx, op, site{own: e, others: others, retained: s.retained})
		if err != nil || given {
			return given, err
		}
	}
	return false, nil
}

// giveBack undoes the move of a directory that is somebody's. What is at the path by now is newer,
// and theirs as well.
func (b *batch) giveBack(ctx context.Context, op operations.Operation, slot string, s site) (given bool, err error) {
	if !s.robbed() {
		return false, nil
	}
	info, err := b.data.look(ctx, op.Path)
	if err != nil || info != nil {
		return false, err
	}
	parent, err := b.data.folder(ctx, path.Dir(op.Path))
	if err != nil {
		return false, err
	}
	if err := b.fs.move(ctx, "give back "+op.Path, b.trash, slot, parent, path.Base(op.Path)); err != nil {
		return false, err
	}
	return true, b.dropRecord(ctx, slot)
}

// robbed says that another entry is of a volume that found the directory at the path: the volume
// itself, which began again, or another one. A volume that had a directory made came after the move.
func (s site) robbed() bool {
	found := func(e *entry) bool { return !e.Made }
	return s.own != nil && !s.own.leaving ||
		slices.ContainsFunc(s.others, found) || slices.ContainsFunc(s.retained, found)
}
