package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
)

// restore gives the operation's volume a directory of the trash.
//
//	own entry   in the trash   at the path   what is done
//	none        there          nothing       entry, directory moved back, record dropped
//	own         there          nothing       the rest of that
//	own         gone           there         record dropped (a run that died at the end)
func (b *Batch) restore(ctx context.Context, op operations.Operation) (Outcome, error) {
	found, err := b.Occupancy(ctx, op)
	if err != nil {
		return Outcome{}, err
	}
	if err := b.CheckUnshared(ctx, op, found, found.Others, "restore to a path of its own"); err != nil {
		return Outcome{}, err
	}
	if own := found.Own; own != nil && own.RestoredFrom != "" && found.Info != nil {
		if gone, err := b.dropOrphan(ctx, own.RestoredFrom); gone || err != nil {
			return DoneBy(Restored, operations.Result{GID: own.GID}), err
		}
	}
	if found.Info != nil {
		return Outcome{}, fsroot.Refuse(operations.PathTaken, "%s is there already: restore to a path where nothing is", fsroot.Quote(op.Path))
	}
	record, err := b.findRecord(ctx, op)
	if err != nil {
		return Outcome{}, err
	}
	now, err := b.system.ServerNow(ctx)
	if err != nil {
		return Outcome{}, err
	}
	e := ledger.NewEntry(op.Owner, now)
	e.GID, e.Made, e.RestoredFrom, e.Size = record.Owner.GID, true, record.Slot, op.Size
	if err := b.gids.MoveTo(ctx, e.GID, op); err != nil {
		return Outcome{}, err
	}
	if err := b.Ledger.Write(ctx, op.Path, e); err != nil {
		return Outcome{}, err
	}
	if err := b.cancelCleanup(ctx, op, found); err != nil {
		return Outcome{}, err
	}
	if err := b.moveOut(ctx, op, record.Slot); err != nil {
		return Outcome{}, b.Withdraw(ctx, op, found, e, err)
	}
	return DoneBy(Restored, operations.Result{GID: e.GID}), b.Trash.DropRecord(ctx, record.Slot)
}

// findRecord finds what a claim left in the trash, and refuses that of another cluster or namespace.
func (b *Batch) findRecord(ctx context.Context, op operations.Operation) (*trash.Record, error) {
	record, err := b.findByVolume(ctx, wellknown.VolumePrefix+op.RestoreFrom)
	if err == nil && record == nil {
		record, err = b.findByClaim(ctx, op.RestoreFrom)
	}
	claim := operations.Truncate(op.RestoreFrom, 64)
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, fsroot.Refuse(operations.NothingToRestore, "the trash has no directory of a claim with uid %q: it was kept too short, or was not removed, or the uid is another one", claim)
	case record.Owner.Cluster != op.Cluster:
		return nil, fsroot.Refuse(operations.OwnedByOtherCluster, "what claim %q left belongs to another cluster: restore it there", claim)
	case record.Owner.Namespace != op.Namespace:
		return nil, fsroot.Refuse(operations.OwnedByOtherNamespace, "what claim %q left belongs to another namespace: restore it there", claim)
	case record.Owner.IsOfEarlierNamespace(op.Owner) && !op.ShareAcrossNamespaces:
		return nil, fsroot.Refuse(operations.OwnedByOtherNamespace, "what claim %q left belongs to an earlier namespace: %s", claim, Recreated(op.Namespace))
	}
	return record, nil
}

// findByVolume finds the last incarnation of a volume. A sweep may have emptied any slot before it.
func (b *Batch) findByVolume(ctx context.Context, volume string) (*trash.Record, error) {
	slots, err := b.slots()
	if err != nil {
		return nil, err
	}
	var records []*trash.Record
	if err := b.Trash.RecordsOf(ctx, slots[volume], func(record *trash.Record) { records = append(records, record) }); err != nil {
		return nil, err
	}
	return b.newest(records)
}

// newest is the last of some records whose directory is there: it may not have been moved, or restored since.
func (b *Batch) newest(records []*trash.Record) (last *trash.Record, err error) {
	for _, record := range records {
		if last != nil && record.Deleted.Before(last.Deleted) {
			continue
		}
		_, err := b.Trash.Inspect(record.Slot)
		if fsroot.IgnoreMissing(err) != nil {
			return nil, err
		}
		if err == nil {
			last = record
		}
	}
	return last, nil
}

// findByClaim finds what a claim left whose volume is not named after it, as in the original system. Those records are
// read once for a batch: restores come last in it.
func (b *Batch) findByClaim(ctx context.Context, uid string) (*trash.Record, error) {
	if b.otherRecords == nil {
		records := map[string][]*trash.Record{}
		all, err := b.slots()
		if err != nil {
			return nil, err
		}
		var others []string
		for volume, slots := range all {
			if !namedAfterClaim.MatchString(volume) {
				others = append(others, slots...)
			}
		}
		err = b.Trash.RecordsOf(ctx, others, func(record *trash.Record) {
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

// namedAfterClaim matches the names of all volumes that this system has made.
var namedAfterClaim = regexp.MustCompile(`^` + wellknown.VolumePrefix + `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (b *Batch) moveOut(ctx context.Context, op operations.Operation, slot string) error {
	info, err := b.Trash.Inspect(slot)
	if err != nil {
		return err
	}
	if err := fsroot.WantDirectory(info, b.Trash.At(slot)); err != nil {
		return err
	}
	return b.Place(ctx, op, "restore", b.Trash.Dir, slot)
}

// dropOrphan drops the record of a directory that is not in the trash any more, and reports whether it is gone.
func (b *Batch) dropOrphan(ctx context.Context, slot string) (gone bool, err error) {
	if _, err := b.Trash.Lstat(slot); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, b.Trash.DropRecord(ctx, slot)
}

// makeVolume makes the directory of a volume, and those on the way to it.
func (b *Batch) makeVolume(ctx context.Context, op operations.Operation, gid int) error {
	mode, err := op.UnixMode(gid)
	if err != nil {
		return err
	}
	parent, err := b.Data.Ensure(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	return b.makeDirectory(ctx, parent, path.Base(op.Path), mode, op.UID, cmp.Or(gid, op.GID))
}

// Place moves a complete directory to the operation's path. The locks are checked just before that.
func (b *Batch) Place(ctx context.Context, op operations.Operation, step string, from *fsroot.Dir, name string, locks ...*fsroot.HeldLock) error {
	parent, err := b.Data.Ensure(ctx, path.Dir(op.Path))
	for _, lock := range append(locks, b.lock) {
		if err == nil {
			err = lock.Check()
		}
	}
	if err == nil {
		err = from.MoveTo(ctx, step+" "+op.Path, name, parent, path.Base(op.Path))
	}
	if errors.Is(err, fs.ErrExist) {
		return fsroot.Replaced(op.Path).Because(err)
	}
	return err
}

// makeShared makes a directory on the way to volumes: root's, so that no tenant can put a link
// into it. Only one is made at a time: a rename replaces an empty directory, so a second one of the
// same name would take the place of the first, which a volume may be about to use.
func (b *Batch) makeShared(ctx context.Context, parent *fsroot.Dir, name string) error {
	b.making.Lock()
	defer b.making.Unlock()
	if _, err := parent.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.makeDirectory(ctx, parent, name, 0o755, 0, 0)
}

// makeDirectory makes a directory aside and renames it into place: it is never seen with the
// wrong mode, a run that dies leaves no half-made one, and one that is there was made whole.
func (b *Batch) makeDirectory(ctx context.Context, parent *fsroot.Dir, name string, mode uint32, uid, gid int) error {
	p := parent.At(name)
	if err := b.system.BeforeGrowing(ctx, "make "+p); err != nil {
		return err
	}
	tmp, err := b.tmp.Take(ctx)
	if err != nil {
		return err
	}
	defer b.tmp.Put(tmp)
	half := fsroot.Unique("directory")
	if err := tmp.Mkdir(half, fsroot.PrivateDirectory); err != nil {
		return fmt.Errorf("making %s: %w", p, err)
	}
	err = setAttributes(tmp, half, mode, uid, gid)
	if err == nil {
		err = tmp.MoveTo(ctx, "place "+p, half, parent, name)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) {
		err = fsroot.Replaced(p).Because(err)
	}
	return errors.Join(err, fsroot.IgnoreMissing(tmp.Remove(half)))
}

// setAttributes sets owner and mode through a handle, so that neither umask nor a link has a say.
func setAttributes(d *fsroot.Dir, name string, mode uint32, uid, gid int) error {
	handle, err := d.Open(name)
	if err != nil {
		return err
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return err
	}
	if fsroot.UserOf(info) != uid || fsroot.GroupOf(info) != gid {
		if err := handle.Chown(uid, gid); err != nil {
			return err
		}
	}
	// After Chown, which drops setuid and setgid.
	return fsroot.IgnoringEINTR(func() error { return syscall.Fchmod(int(handle.Fd()), mode) })
}

// Occupancy reads the entries and the directory. It drops marks of retained data that a person has removed.
func (b *Batch) Occupancy(ctx context.Context, op operations.Operation) (ledger.Occupancy, error) {
	found, err := b.Ledger.Owners(ctx, op)
	if err != nil {
		return ledger.Occupancy{}, err
	}
	found.Info, err = b.Data.Inspect(ctx, op.Path)
	if err != nil || found.Info != nil || len(found.Retained) == 0 {
		return found, err
	}
	back, err := b.resumeUndoOfOthers(ctx, op, found)
	if err != nil {
		return ledger.Occupancy{}, err
	}
	if back {
		found.Info, err = b.Data.Inspect(ctx, op.Path)
		return found, err
	}
	err = b.Ledger.Drop(ctx, op.Path, found.Retained...)
	found.Retained = nil
	return found, err
}
