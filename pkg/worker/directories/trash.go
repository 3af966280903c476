package directories

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
)

// trash holds the directories of deleted volumes, each in a slot, with a record beside it. A slot is a path: a name
// in a bucket.
type trash struct{ *dir }

func (f *FileSystem) openTrash(ctx context.Context) (*trash, error) {
	d, err := f.state.ensure(ctx, path.Base(wellknown.TrashDirectory))
	return &trash{d}, err
}

func (t *trash) close() {
	if t != nil {
		t.dir.close()
	}
}

// trashRecord says what a directory in the trash was. Its file is the slot's name with
// wellknown.OwnerPrefix, which no volume's name starts with. All times are the file server's.
type trashRecord struct {
	Owner   *entry    `json:"owner"` // the last one
	Volume  string    `json:"volume"`
	Path    string    `json:"path,omitempty"` // empty when the server was full
	Deleted time.Time `json:"deleted"`
	Keep    string    `json:"keep,omitempty"`
	Due     time.Time `json:"due,omitzero"` // when the directory may be removed

	slot    string
	forever bool // what Keep means
}

// isDue reports whether the directory may be removed.
func (r trashRecord) isDue(now time.Time) bool { return !r.forever && !r.Due.After(now) }

// isAt reports whether the directory was that of a path, as far as the record knows.
func (r trashRecord) isAt(p string) bool { return r.Path == "" || r.Path == p }

// isOfCleanup reports whether an earlier run of this cleanup wrote the record. A volume whose claim
// began again has the same name, but another time in its entry.
func (r trashRecord) isOfCleanup(op operations.Operation, own *entry) bool {
	return r.isAt(op.Path) && r.Owner.owner() == own.owner() && r.Owner.When.Equal(own.When)
}

func slotName(volume string, incarnation int) string {
	if incarnation == 1 {
		return volume
	}
	return volume + incarnationMark + strconv.Itoa(incarnation)
}

func volumeOf(slot string) string {
	volume, _, _ := strings.Cut(path.Base(slot), incarnationMark)
	return volume
}

func bucketOf(slot string) string { return strings.TrimSuffix(path.Dir(slot), ".") }

func recordName(slot string) string {
	return path.Join(path.Dir(slot), wellknown.OwnerPrefix+path.Base(slot))
}

// slotFor finds the slot of a bucket where a cleanup moves the directory, the first one that is free, or where it
// has moved it already.
func (t *trash) slotFor(ctx context.Context, bucket string, op operations.Operation, own *entry) (slot string, moved bool, err error) {
	for incarnation := 1; ; incarnation++ {
		slot = path.Join(bucket, slotName(op.Volume, incarnation))
		if _, err := t.stat(slot); err != nil { // a record may be there, of a run that died before its move
			return slot, false, ignoreMissing(err)
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
func (t *trash) record(ctx context.Context, slot string) (*trashRecord, error) {
	found := t.readRecord(ctx, slot)
	return found.record, found.err
}

// foundRecord is what there is of a slot's record. One that is there and nil was cut off, or is a
// newer version's.
type foundRecord struct {
	record *trashRecord
	there  bool
	err    error
}

func (t *trash) readRecord(ctx context.Context, slot string) foundRecord {
	name := recordName(slot)
	if err := t.fs.before(ctx, "read record "+t.at(name)); err != nil {
		return foundRecord{err: err}
	}
	data, written, err := t.dir.read(name)
	if err != nil {
		return foundRecord{err: ignoreMissing(err)}
	}
	return foundRecord{record: parseRecord(slot, data, written), there: true}
}

// readRecords reads many records at once.
func (t *trash) readRecords(ctx context.Context, slots []string, workers int) ([]foundRecord, error) {
	found := make([]foundRecord, len(slots))
	err := inParallel(ctx, workers, len(slots), func(i int) error {
		found[i] = t.readRecord(ctx, slots[i])
		return nil
	})
	return found, err
}

// recordsAtOnce is how many records are read before they are used.
const recordsAtOnce = 256

// slots are those that have a record, or may have one of a run that died.
func (t *trash) slots(ctx context.Context) (slots []string, err error) {
	all, err := t.listAll(ctx)
	for _, c := range all {
		slots = append(slots, c.records...)
	}
	return slots, err
}

func (t *trash) slotsByVolume(ctx context.Context) (map[string][]string, error) {
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
func (t *trash) eachRecord(ctx context.Context, do func(*trashRecord)) error {
	slots, err := t.slots(ctx)
	if err != nil {
		return err
	}
	return t.recordsOf(ctx, slots, do)
}

// recordsOf reads the records of slots, in pieces: a trash can be large.
func (t *trash) recordsOf(ctx context.Context, slots []string, do func(*trashRecord)) error {
	for piece := range slices.Chunk(slots, recordsAtOnce) {
		found, err := t.readRecords(ctx, piece, DefaultSweepWorkers)
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

func parseRecord(slot string, data []byte, written time.Time) *trashRecord {
	record := &trashRecord{}
	if err := json.Unmarshal(data, record); err != nil {
		return nil
	}
	record.slot = slot
	if record.Owner == nil {
		return entryAsRecord(slot, data, written)
	}
	record.Owner.volume = record.Volume
	_, forever, err := operations.ParseKeep(record.Keep)
	if err != nil || record.Due.IsZero() && !forever {
		return nil
	}
	record.forever = forever
	return record
}

// entryAsRecord reads an entry of the ledger that a full server had no space to put a record beside:
// its file has the time when the directory is due.
func entryAsRecord(slot string, data []byte, written time.Time) *trashRecord {
	e, err := parseEntry(recordName(volumeOf(slot)), data)
	if err != nil {
		return nil
	}
	return &trashRecord{Owner: e, Volume: e.volume, Deleted: e.When, Due: written, slot: slot, forever: written.Equal(neverDue())}
}

// neverDue is a time that every server can give a file.
func neverDue() time.Time { return time.Unix(1<<31-1, 0) }

// dropRecord removes the record of a slot whose directory is in the trash no more.
func (t *trash) dropRecord(ctx context.Context, slot string) error {
	return t.remove(ctx, recordName(slot))
}

// gids gives the groups of the directories.
func (t *trash) gids(ctx context.Context, use func(gid int)) error {
	return t.eachRecord(ctx, func(r *trashRecord) { use(r.Owner.GID) })
}
