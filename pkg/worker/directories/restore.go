package directories

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// restore gives the operation's volume a directory of the trash.
//
//	own entry   in the trash   at the path   what is done
//	none        there          nothing       entry, directory moved back, record dropped
//	own         there          nothing       the rest of that
//	own         gone           there         record dropped (a run that died at the end)
func (b *batch) restore(ctx context.Context, op operations.Operation) (outcome, error) {
	found, err := b.occupancy(ctx, op)
	if err != nil {
		return outcome{}, err
	}
	if err := b.checkRestore(ctx, op, found); err != nil {
		return outcome{}, err
	}
	if found.own != nil && found.own.RestoredFrom != "" && found.info != nil {
		return doneBy(Restored, operations.Result{GID: found.own.GID}), b.dropOrphan(ctx, found.own.RestoredFrom)
	}
	if found.info != nil {
		return outcome{}, refuse(operations.PathTaken, "%s is there already: restore to a path where nothing is", quote(op.Path))
	}
	record, err := b.findRecord(ctx, op)
	if err != nil {
		return outcome{}, err
	}
	now, err := b.fs.serverNow(ctx)
	if err != nil {
		return outcome{}, err
	}
	e := newEntry(op.Owner, now)
	e.GID, e.Made, e.RestoredFrom = record.Owner.GID, true, record.slot
	if err := b.gids.moveTo(ctx, e.GID, op); err != nil {
		return outcome{}, err
	}
	if err := b.ledger.write(ctx, op.Path, e); err != nil {
		return outcome{}, err
	}
	if err := b.cancelCleanup(ctx, op, found); err != nil {
		return outcome{}, err
	}
	if err := b.moveOut(ctx, op, record.slot); err != nil {
		return outcome{}, b.withdraw(ctx, op, found, e, err)
	}
	return doneBy(Restored, operations.Result{GID: e.GID}), b.trash.dropRecord(ctx, record.slot)
}

func (b *batch) checkRestore(ctx context.Context, op operations.Operation, found occupancy) error {
	if err := b.checkNesting(ctx, op); err != nil {
		return err
	}
	if found.own != nil {
		if err := checkName(op, found.own); err != nil {
			return err
		}
	}
	if len(found.others) > 0 {
		return refuse(operations.PathTaken, "%s belongs to %s: restore to a path of its own", quote(op.Path), found.others[0]).of(found.others[0].owner())
	}
	return nil
}

// findRecord finds the directory of a claim in the trash, and refuses that of another cluster or
// namespace.
func (b *batch) findRecord(ctx context.Context, op operations.Operation) (*trashRecord, error) {
	record, err := b.findByVolume(ctx, wellknown.VolumePrefix+op.RestoreFrom)
	if err == nil && record == nil {
		record, err = b.findByClaim(ctx, op.RestoreFrom)
	}
	claim := operations.Truncate(op.RestoreFrom, 64)
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, refuse(operations.NothingToRestore, "the trash has no directory of a claim with uid %q: it was kept too short, or was not removed, or the uid is another one", claim)
	case record.Owner.Cluster != op.Cluster:
		return nil, refuse(operations.OwnedByOtherCluster, "what claim %q left belongs to another cluster: restore it there", claim)
	case record.Owner.Namespace != op.Namespace:
		return nil, refuse(operations.OwnedByOtherNamespace, "what claim %q left belongs to another namespace: restore it there", claim)
	case record.Owner.isOfEarlierNamespace(op.Owner) && !op.ShareAcrossNamespaces:
		return nil, refuse(operations.OwnedByOtherNamespace, "what claim %q left belongs to an earlier namespace: %s", claim, recreated(op.Namespace))
	}
	return record, nil
}

// findByVolume finds the last incarnation of a volume. A sweep may have emptied any slot before it.
func (b *batch) findByVolume(ctx context.Context, volume string) (*trashRecord, error) {
	slots, err := b.slotsOf(ctx, volume)
	if err != nil {
		return nil, err
	}
	var records []*trashRecord
	if err := b.trash.recordsOf(ctx, slots, func(record *trashRecord) { records = append(records, record) }); err != nil {
		return nil, err
	}
	return b.newest(records)
}

// newest is the last of some records whose directory is in the trash: a move may not have been done, and an
// earlier restore of the batch may have taken the directory.
func (b *batch) newest(records []*trashRecord) (last *trashRecord, err error) {
	for _, record := range records {
		if last != nil && record.Deleted.Before(last.Deleted) {
			continue
		}
		_, err := b.trash.stat(record.slot)
		if ignoreMissing(err) != nil {
			return nil, err
		}
		if err == nil {
			last = record
		}
	}
	return last, nil
}

// slotsOf are the slots of a volume when the first restore of the batch began.
func (b *batch) slotsOf(ctx context.Context, volume string) ([]string, error) {
	if b.slots != nil {
		return b.slots[volume], nil
	}
	var err error
	b.slots, err = b.trash.slotsByVolume(ctx)
	return b.slots[volume], err
}

// findByClaim finds the directory of a claim whose volume is not named after it, as those of the
// original system. findByVolume has listed the slots before. Their records are read once for a batch:
// restores come last in it.
func (b *batch) findByClaim(ctx context.Context, uid string) (*trashRecord, error) {
	if b.otherRecords == nil {
		records := map[string][]*trashRecord{}
		var others []string
		for volume, slots := range b.slots {
			if !namedAfterClaim.MatchString(volume) {
				others = append(others, slots...)
			}
		}
		err := b.trash.recordsOf(ctx, others, func(record *trashRecord) {
			uid := record.Owner.ClaimUID
			records[uid] = append(records[uid], record)
		})
		if err != nil {
			return nil, err
		}
		b.otherRecords = records
	}
	return b.newest(b.otherRecords[uid])
}

// namedAfterClaim matches the volumes that are named after the uid of their claim, as all are that this
// system has made.
var namedAfterClaim = regexp.MustCompile(`^` + wellknown.VolumePrefix + `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// moveOut moves a directory from the trash to the operation's path.
func (b *batch) moveOut(ctx context.Context, op operations.Operation, slot string) error {
	info, err := b.trash.stat(slot)
	if err != nil {
		return err
	}
	if err := wantDirectory(info, b.trash.at(slot)); err != nil {
		return err
	}
	parent, err := b.data.ensure(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	if err := b.lock.check(); err != nil {
		return err
	}
	err = b.trash.move(ctx, "restore "+op.Path, slot, parent, path.Base(op.Path))
	if errors.Is(err, fs.ErrExist) {
		return replaced(op.Path).because(err)
	}
	return err
}

// dropOrphan drops a record whose directory is not in the trash any more.
func (b *batch) dropOrphan(ctx context.Context, slot string) error {
	if _, err := b.trash.Lstat(slot); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.trash.dropRecord(ctx, slot)
}
