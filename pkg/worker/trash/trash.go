// Package trash keeps the directories of deleted volumes until they are due. Sweep removes what is due, Empty
// what an administrator has selected, and List shows what there is.
package trash

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// Trash holds deleted directories, each in a slot, with a record beside it. A slot is a path: a name in a bucket.
type Trash struct{ *fsroot.Dir }

// Open opens the trash, and makes it if it is missing. It can be closed after an error, too.
func Open(ctx context.Context, f *fsroot.FileSystem) (*Trash, error) {
	d, err := f.State.Ensure(ctx, path.Base(wellknown.TrashDirectory))
	return &Trash{d}, err
}

// Record says what a directory in the trash was. Its file is the slot's name with
// wellknown.OwnerPrefix, which no volume's name starts with. All times are the file server's.
type Record struct {
	Owner   *ledger.Entry `json:"owner"` // the last one
	Volume  string        `json:"volume"`
	Path    string        `json:"path,omitempty"` // empty when the server was full
	Deleted time.Time     `json:"deleted"`
	Keep    string        `json:"keep,omitempty"`
	Due     time.Time     `json:"due,omitzero"` // when the directory may be removed

	Slot    string `json:"-"`
	Forever bool   `json:"-"` // what Keep means
}

func (r Record) isDue(now time.Time) bool { return !r.Forever && !r.Due.After(now) }

// IsAt reports whether the directory was that of a path, as far as the record knows.
func (r Record) IsAt(p string) bool { return r.Path == "" || r.Path == p }

// isOfCleanup reports whether an earlier run of this cleanup wrote the record. A volume whose claim
// began again has the same name, but another time in its entry.
func (r Record) isOfCleanup(op operations.Operation, own *ledger.Entry) bool {
	return r.IsAt(op.Path) && r.Owner.Owner() == own.Owner() && r.Owner.When.Equal(own.When)
}

func volumeOf(slot string) string {
	volume, _, _ := strings.Cut(path.Base(slot), ledger.IncarnationMark)
	return volume
}

func recordName(slot string) string {
	return path.Join(path.Dir(slot), wellknown.OwnerPrefix+path.Base(slot))
}

// SlotFor finds the slot of a bucket that a cleanup moves the directory to, the first free one, or has moved it to.
func (t *Trash) SlotFor(ctx context.Context, bucket string, op operations.Operation, own *ledger.Entry) (slot string, moved bool, err error) {
	slot = path.Join(bucket, op.Volume)
	for incarnation := 2; ; incarnation++ {
		if _, err := t.Inspect(slot); err != nil { // a record may be there, of a run that died before its move
			return slot, false, fsroot.IgnoreMissing(err)
		}
		found := t.readRecord(ctx, slot)
		if found.err != nil {
			return "", false, found.err
		}
		if found.record != nil && found.record.isOfCleanup(op, own) {
			return slot, true, nil
		}
		slot = path.Join(bucket, op.Volume+ledger.IncarnationMark+strconv.Itoa(incarnation))
	}
}

// Prepare writes the record of a directory that goes to the trash, and gives its slot: before, if it is in the bucket
// that an earlier run has chosen. The name of the entry says in which bucket the next run finds the directory.
func (t *Trash) Prepare(ctx context.Context, tmp *fsroot.TmpDirs, l *ledger.Ledger, op operations.Operation, own *ledger.Entry, before string) (slot string, err error) {
	keep, forever, err := operations.ParseKeep(op.Keep)
	if err != nil {
		return "", err
	}
	now, err := t.System.ServerNow(ctx)
	if err != nil {
		return "", err
	}
	record := Record{Owner: own, Volume: op.Volume, Path: op.Path, Deleted: now, Keep: op.Keep, Forever: forever}
	if !forever {
		record.Due = now.Add(keep)
	}
	bucket, err := t.makeBucket(ctx, ledger.BucketFor(record.Due, keep, forever))
	if err != nil {
		return "", err
	}
	if slot = before; bucket != own.Bucket {
		if err := t.DropRecord(ctx, before); err != nil {
			return "", err
		}
		if err := l.Rename(ctx, op.Path, own, ledger.StateLeaving, bucket); err != nil {
			return "", err
		}
		if slot, _, err = t.SlotFor(ctx, bucket, op, own); err != nil {
			return "", err
		}
	}
	err = tmp.Write(ctx, t.Dir, recordName(slot), record)
	if fsroot.IsNoSpace(err) {
		err = t.linkRecord(ctx, l, slot, record)
	}
	return slot, err
}

// makeBucket makes a bucket. On a full server, the directory goes to the trash itself instead.
func (t *Trash) makeBucket(ctx context.Context, bucket string) (string, error) {
	if bucket == ledger.BucketAtOnce {
		return bucket, nil
	}
	err := t.MakePrivate(ctx, bucket)
	if fsroot.IsNoSpace(err) {
		return ledger.BucketAtOnce, nil
	}
	return bucket, err
}

// linkRecord makes the owner's entry the record too, by a link, because a deletion must not need
// space: only it can free some. The entry's time becomes that when the directory is due.
func (t *Trash) linkRecord(ctx context.Context, l *ledger.Ledger, slot string, record Record) error {
	d, err := l.Tree.Dir(ctx, record.Path)
	if err != nil {
		return err
	}
	due, own := record.Due, record.Owner
	if record.Forever {
		due = neverDue()
	}
	name := recordName(slot)
	if err := t.System.Before(ctx, "link "+t.At(name)); err != nil {
		return err
	}
	if err := d.Chtimes(own.FileName(), due, due); err != nil {
		return fmt.Errorf("setting the time of the owner %s: %w", own, err)
	}
	if err := fsroot.IgnoreMissing(t.Remove(name)); err != nil { // of an earlier run, or an earlier incarnation
		return fmt.Errorf("removing %s: %w", t.At(name), err)
	}
	entryFile := path.Join(path.Base(wellknown.OwnersDirectory), record.Path, own.FileName())
	if err := t.System.State.Link(entryFile, path.Join(path.Base(wellknown.TrashDirectory), name)); err != nil {
		return fmt.Errorf("linking %s: %w", t.At(name), err)
	}
	return nil
}

// foundRecord has a nil record if the file does not exist, or cannot be decoded, which protects the directory.
type foundRecord struct {
	slot   string
	record *Record
	there  bool
	err    error
}

func (t *Trash) readRecord(ctx context.Context, slot string) foundRecord {
	name := recordName(slot)
	if err := t.System.Before(ctx, "read record "+t.At(name)); err != nil {
		return foundRecord{slot: slot, err: err}
	}
	data, written, err := t.Dir.ReadSmall(name)
	if err != nil {
		return foundRecord{slot: slot, err: fsroot.IgnoreMissing(err)}
	}
	return foundRecord{slot: slot, record: parseRecord(slot, data, written), there: true}
}

func (t *Trash) readRecords(ctx context.Context, slots []string, workers int) ([]foundRecord, error) {
	found := make([]foundRecord, len(slots))
	err := fsroot.InParallel(ctx, workers, len(slots), func(i int) error {
		found[i] = t.readRecord(ctx, slots[i])
		return nil
	})
	return found, err
}

// recordsAtOnce is how many records are read before they are used.
const recordsAtOnce = 256

// eachFound reads the records of slots, in pieces: a trash can be large.
func (t *Trash) eachFound(ctx context.Context, slots []string, visit func(foundRecord) error) error {
	for piece := range slices.Chunk(slots, recordsAtOnce) {
		found, err := t.readRecords(ctx, piece, fsroot.DefaultSweepWorkers)
		for _, f := range found {
			if err = cmp.Or(err, f.err); err == nil {
				err = visit(f)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RecordsOf reads the records of slots.
func (t *Trash) RecordsOf(ctx context.Context, slots []string, do func(*Record)) error {
	return t.eachFound(ctx, slots, func(f foundRecord) error {
		if f.record != nil {
			do(f.record)
		}
		return nil
	})
}

// eachRecord reads all records, also those without a directory, of a run that died.
func (t *Trash) eachRecord(ctx context.Context, do func(*Record)) error {
	all, err := t.listAll(ctx)
	if err != nil {
		return err
	}
	return t.RecordsOf(ctx, all.records, do)
}

// SlotsByVolume lists the slots that have a record by their volume.
func (t *Trash) SlotsByVolume(ctx context.Context) (map[string][]string, error) {
	all, err := t.listAll(ctx)
	if err != nil {
		return nil, err
	}
	slots := map[string][]string{}
	for _, slot := range all.records {
		slots[volumeOf(slot)] = append(slots[volumeOf(slot)], slot)
	}
	return slots, nil
}

func parseRecord(slot string, data []byte, written time.Time) *Record {
	record := &Record{}
	if err := json.Unmarshal(data, record); err != nil {
		return nil
	}
	record.Slot = slot
	if record.Owner == nil {
		return entryAsRecord(slot, data, written)
	}
	record.Owner.Volume = record.Volume
	_, forever, err := operations.ParseKeep(record.Keep)
	if err != nil || record.Due.IsZero() && !forever {
		return nil
	}
	record.Forever = forever
	return record
}

// entryAsRecord reads an entry that linkRecord has made a record: its file has the time when the directory is due.
func entryAsRecord(slot string, data []byte, written time.Time) *Record {
	e, err := ledger.ParseEntry(recordName(volumeOf(slot)), data)
	if err != nil {
		return nil
	}
	return &Record{Owner: e, Volume: e.Volume, Deleted: e.When, Due: written, Slot: slot, Forever: written.Equal(neverDue())}
}

// neverDue is a time that every server can give a file.
func neverDue() time.Time { return time.Unix(1<<31-1, 0) }

// DropRecord removes the record of a slot whose directory is in the trash no more.
func (t *Trash) DropRecord(ctx context.Context, slot string) error {
	return t.RemoveEntry(ctx, recordName(slot))
}

// Gids gives the groups of the directories.
func (t *Trash) Gids(ctx context.Context, use func(gid int)) error {
	return t.eachRecord(ctx, func(r *Record) { use(r.Owner.GID) })
}
