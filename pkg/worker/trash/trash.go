package trash

import (
	"context"
	"encoding/json"
	"errors"
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

// Trash holds the directories of deleted volumes, each in a slot, with a record beside it. A slot is a path: a name
// in a bucket.
type Trash struct{ *fsroot.Dir }

// OpenTrash opens the trash, and makes it if it is missing.
func OpenTrash(ctx context.Context, f *fsroot.FileSystem) (*Trash, error) {
	d, err := f.State.Ensure(ctx, path.Base(wellknown.TrashDirectory))
	return &Trash{d}, err
}

// Close closes the handles.
func (t *Trash) Close() {
	if t != nil {
		t.Dir.Close()
	}
}

// TrashRecord says what a directory in the trash was. Its file is the slot's name with
// wellknown.OwnerPrefix, which no volume's name starts with. All times are the file server's.
type TrashRecord struct {
	Owner   *ledger.Entry `json:"owner"` // the last one
	Volume  string        `json:"volume"`
	Path    string        `json:"path,omitempty"` // empty when the server was full
	Deleted time.Time     `json:"deleted"`
	Keep    string        `json:"keep,omitempty"`
	Due     time.Time     `json:"due,omitzero"` // when the directory may be removed

	Slot    string `json:"-"`
	Forever bool   `json:"-"` // what Keep means
}

// IsDue reports whether the directory may be removed.
func (r TrashRecord) IsDue(now time.Time) bool { return !r.Forever && !r.Due.After(now) }

// IsAt reports whether the directory was that of a path, as far as the record knows.
func (r TrashRecord) IsAt(p string) bool { return r.Path == "" || r.Path == p }

// isOfCleanup reports whether an earlier run of this cleanup wrote the record. A volume whose claim
// began again has the same name, but another time in its entry.
func (r TrashRecord) isOfCleanup(op operations.Operation, own *ledger.Entry) bool {
	return r.IsAt(op.Path) && r.Owner.Owner() == own.Owner() && r.Owner.When.Equal(own.When)
}

// SlotName returns the name in a bucket of an incarnation of a volume.
func SlotName(volume string, incarnation int) string {
	if incarnation == 1 {
		return volume
	}
	return volume + ledger.IncarnationMark + strconv.Itoa(incarnation)
}

func volumeOf(slot string) string {
	volume, _, _ := strings.Cut(path.Base(slot), ledger.IncarnationMark)
	return volume
}

func bucketOf(slot string) string { return strings.TrimSuffix(path.Dir(slot), ".") }

// RecordName returns the file of the record of a slot.
func RecordName(slot string) string {
	return path.Join(path.Dir(slot), wellknown.OwnerPrefix+path.Base(slot))
}

// SlotFor finds the slot of a bucket where a cleanup moves the directory, the first one that is free, or where it
// has moved it already.
func (t *Trash) SlotFor(ctx context.Context, bucket string, op operations.Operation, own *ledger.Entry) (slot string, moved bool, err error) {
	for incarnation := 1; ; incarnation++ {
		slot = path.Join(bucket, SlotName(op.Volume, incarnation))
		if _, err := t.Inspect(slot); err != nil { // a record may be there, of a run that died before its move
			return slot, false, fsroot.IgnoreMissing(err)
		}
		record, err := t.record(ctx, slot)
		if err != nil {
			return "", false, err
		}
		if record != nil && record.isOfCleanup(op, own) {
			return slot, true, nil
		}
	}
}

// record reads the record of a slot; nil if there is none, or none that can be read, which protects
// the directory.
func (t *Trash) record(ctx context.Context, slot string) (*TrashRecord, error) {
	found := t.readRecord(ctx, slot)
	return found.record, found.err
}

// foundRecord is what there is of a slot's record. One that is there and nil was cut off, or is a
// newer version's.
type foundRecord struct {
	record *TrashRecord
	there  bool
	err    error
}

func (t *Trash) readRecord(ctx context.Context, slot string) foundRecord {
	name := RecordName(slot)
	if err := t.System.Before(ctx, "read record "+t.At(name)); err != nil {
		return foundRecord{err: err}
	}
	data, written, err := t.Dir.ReadSmall(name)
	if err != nil {
		return foundRecord{err: fsroot.IgnoreMissing(err)}
	}
	return foundRecord{record: parseRecord(slot, data, written), there: true}
}

// readRecords reads many records at once.
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

// slots are those that have a record, or may have one of a run that died.
func (t *Trash) slots(ctx context.Context) (slots []string, err error) {
	all, err := t.listAll(ctx)
	for _, c := range all {
		slots = append(slots, c.records...)
	}
	return slots, err
}

// SlotsByVolume lists the slots of the trash by their volume.
func (t *Trash) SlotsByVolume(ctx context.Context) (map[string][]string, error) {
	all, err := t.slots(ctx)
	if err != nil {
		return nil, err
	}
	slots := map[string][]string{}
	for _, slot := range all {
		slots[volumeOf(slot)] = append(slots[volumeOf(slot)], slot)
	}
	return slots, nil
}

// eachRecord reads all records.
func (t *Trash) eachRecord(ctx context.Context, do func(*TrashRecord)) error {
	slots, err := t.slots(ctx)
	if err != nil {
		return err
	}
	return t.RecordsOf(ctx, slots, do)
}

// RecordsOf reads the records of slots, in pieces: a trash can be large.
func (t *Trash) RecordsOf(ctx context.Context, slots []string, do func(*TrashRecord)) error {
	for piece := range slices.Chunk(slots, recordsAtOnce) {
		found, err := t.readRecords(ctx, piece, fsroot.DefaultSweepWorkers)
		for _, f := range found {
			err = errors.Join(err, f.err)
			if f.record != nil {
				do(f.record)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func parseRecord(slot string, data []byte, written time.Time) *TrashRecord {
	record := &TrashRecord{}
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

// entryAsRecord reads an entry of the ledger that a full server had no space to put a record beside:
// its file has the time when the directory is due.
func entryAsRecord(slot string, data []byte, written time.Time) *TrashRecord {
	e, err := ledger.ParseEntry(RecordName(volumeOf(slot)), data)
	if err != nil {
		return nil
	}
	return &TrashRecord{Owner: e, Volume: e.Volume, Deleted: e.When, Due: written, Slot: slot, Forever: written.Equal(NeverDue())}
}

// NeverDue is a time that every server can give a file.
func NeverDue() time.Time { return time.Unix(1<<31-1, 0) }

// DropRecord removes the record of a slot whose directory is in the trash no more.
func (t *Trash) DropRecord(ctx context.Context, slot string) error {
	return t.RemoveEntry(ctx, RecordName(slot))
}

// Gids gives the groups of the directories.
func (t *Trash) Gids(ctx context.Context, use func(gid int)) error {
	return t.eachRecord(ctx, func(r *TrashRecord) { use(r.Owner.GID) })
}
