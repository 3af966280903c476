package directories

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// restore makes the operation's volume of a directory in the trash.
//
//	own entry   in the trash   at the path   what is done
//	none        there          nothing       entry, directory moved back, record dropped
//	own         there          nothing       the rest of that
//	own         gone           there         record dropped (a run that died at the end)
func (b *batch) restore(ctx context.Context, op operations.Operation) (operations.Result, error) {
	s, err := b.survey(ctx, op)
	if err != nil {
		return operations.Result{}, err
	}
	if err := b.mayRestore(ctx, op, s); err != nil {
		return operations.Result{}, err
	}
	if s.own != nil && s.own.RestoredFrom != "" && s.info != nil {
		return operations.Result{State: operations.Done, GID: s.own.GID}, b.dropOrphan(ctx, s.own.RestoredFrom)
	}
	if s.info != nil {
		return operations.Result{}, refuse(operations.PathTaken, "%s is there already: restore to a path where nothing is", quote(op.Path))
	}
	record, err := b.find(ctx, op)
	if err != nil {
		return operations.Result{}, err
	}
	return b.bringBack(ctx, op, s, record)
}

func (b *batch) mayRestore(ctx context.Context, op operations.Operation, s site) error {
	if err := b.notNested(ctx, op); err != nil {
		return err
	}
	if s.own != nil && !s.own.isOf(op.Owner) {
		return refuse(operations.VolumeNameTaken, "%s is in the ledger as %s: rename this volume, or release that one", quote(op.Path), s.own).of(s.own.owner())
	}
	if len(s.others) > 0 {
		return refuse(operations.PathTaken, "%s belongs to %s: restore to a path of its own", quote(op.Path), s.others[0]).of(s.others[0].owner())
	}
	return nil
}

// find looks for the directory of a claim in the trash, and refuses other people's.
func (b *batch) find(ctx context.Context, op operations.Operation) (*trashRecord, error) {
	record, err := b.findVolume(ctx, wellknown.VolumePrefix+op.RestoreFrom)
	if err == nil && record == nil {
		record, err = b.findStray(ctx, op.RestoreFrom)
	}
	switch {
	case err != nil:
		return nil, err
	case record == nil:
		return nil, refuse(operations.NothingToRestore, "the trash has no directory of a claim with uid %q: it was kept too short, or was not removed, or the uid is another one", operations.Truncate(op.RestoreFrom, 64))
	case record.Owner.Cluster != op.Cluster:
		return nil, refuse(operations.OwnedByOtherCluster, "what claim %q left belongs to another cluster: restore it there", operations.Truncate(op.RestoreFrom, 64))
	case record.Owner.Namespace != op.Namespace:
		return nil, refuse(operations.OwnedByOtherNamespace, "what claim %q left belongs to another namespace: restore it there", operations.Truncate(op.RestoreFrom, 64))
	case record.Owner.isOfEarlierNamespace(op.Owner) && !op.ShareAcrossNamespaces:
		return nil, refuse(operations.OwnedByOtherNamespace, "what claim %q left belongs to an earlier namespace: %s", operations.Truncate(op.RestoreFrom, 64), madeAgain(op.Namespace))
	}
	return record, nil
}

// findVolume finds the last life of a volume.
func (b *batch) findVolume(ctx context.Context, volume string) (*trashRecord, error) {
	var last *trashRecord
	for life := 1; ; life++ {
		slot := slotName(volume, life)
		if _, err := b.trash.Lstat(slot); errors.Is(err, fs.ErrNotExist) {
			return last, nil
		} else if err != nil {
			return nil, err
		}
		record, err := b.readRecord(ctx, slot)
		if err != nil {
			return nil, err
		}
		if record != nil && (last == nil || record.Deleted.After(last.Deleted)) {
			last = record
		}
	}
}

// findStray finds the directory of a claim whose volume is not named after it, as those of the
// original system. Their records are read once for a batch: restores come last in it.
func (b *batch) findStray(ctx context.Context, uid string) (*trashRecord, error) {
	if b.strays == nil {
		strays, err := b.readStrays(ctx)
		if err != nil {
			return nil, err
		}
		b.strays = strays
	}
	var last *trashRecord
	for _, record := range b.strays[uid] {
		if last != nil && record.Deleted.Before(last.Deleted) {
			continue
		}
		if _, err := b.trash.Lstat(record.slot); err == nil { // not restored in this batch
			last = record
		}
	}
	return last, nil
}

func (b *batch) readStrays(ctx context.Context) (map[string][]*trashRecord, error) {
	strays := map[string][]*trashRecord{}
	isStray := func(slot string) bool { return !isOurName(volumeOf(slot)) }
	err := b.eachRecord(ctx, isStray, func(record *trashRecord) {
		uid := record.Owner.ClaimUID
		strays[uid] = append(strays[uid], record)
	})
	return strays, err
}

// isOurName says whether a volume is named after the uid of its claim, as all are that this system
// has made.
func isOurName(volume string) bool {
	uid, ok := strings.CutPrefix(volume, wellknown.VolumePrefix)
	if !ok || len(uid) != len("01234567-89ab-cdef-0123-456789abcdef") {
		return false
	}
	for i, c := range []byte(uid) {
		isDash := i == 8 || i == 13 || i == 18 || i == 23
		if isDash != (c == '-') || !isDash && !strings.ContainsRune("0123456789abcdef", rune(c)) {
			return false
		}
	}
	return true
}

// bringBack enters the new owner, and moves the directory from the trash to it.
func (b *batch) bringBack(ctx context.Context, op operations.Operation, s site, record *trashRecord) (operations.Result, error) {
	e := newEntry(op.Owner, b.fs.now())
	e.GID, e.Made, e.RestoredFrom = record.Owner.GID, true, record.slot
	if err := b.keepGID(ctx, op, e.GID); err != nil {
		return operations.Result{}, err
	}
	if err := b.ledger.write(ctx, op.Path, e); err != nil {
		return operations.Result{}, err
	}
	if err := b.stay(ctx, op); err != nil {
		return operations.Result{}, err
	}
	if err := b.moveBack(ctx, op, record.slot); err != nil {
		return operations.Result{}, b.withdraw(ctx, op, s, e, err)
	}
	return operations.Result{State: operations.Done, GID: e.GID}, b.dropRecord(ctx, record.slot)
}

// keepGID notes where the gid has gone, so that it is not taken for free.
func (b *batch) keepGID(ctx context.Context, op operations.Operation, gid int) error {
	if gid == 0 {
		return nil
	}
	if err := b.gids.list(); err != nil || b.gids.isFor(gid, op) {
		return err
	}
	return b.gids.record(ctx, gid, grant{Volume: op.Volume, Path: op.Path})
}

func (b *batch) moveBack(ctx context.Context, op operations.Operation, slot string) error {
	looked, err := b.trash.Lstat(slot)
	if err != nil {
		return err
	}
	if err := wantDirectory(looked, inTrash(slot)); err != nil {
		return err
	}
	parent, err := b.data.ensure(ctx, path.Dir(op.Path))
	if err != nil {
		return err
	}
	err = b.fs.move(ctx, "restore "+op.Path, b.trash, slot, parent, path.Base(op.Path))
	if errors.Is(err, fs.ErrExist) {
		return changed(op.Path).because(err)
	}
	return err
}

// dropOrphan drops a record whose directory is not in the trash any more.
func (b *batch) dropOrphan(ctx context.Context, slot string) error {
	if _, err := b.trash.Lstat(slot); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.dropRecord(ctx, slot)
}
