package directories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// trashRecord says what a directory in the trash was. Its file is the directory's name with
// wellknown.OwnerPrefix, which no volume's name starts with. All times are the file server's.
type trashRecord struct {
	Owner   *entry    `json:"owner"` // the last one
	Volume  string    `json:"volume"`
	Path    string    `json:"path,omitempty"` // empty when the server was full
	Deleted time.Time `json:"deleted"`
	Keep    string    `json:"keep,omitempty"`
	// Due is when the directory may be removed. Records of the versions before have none: their
	// Deleted is by the clock of a node, so what counts is when the file was written.
	Due time.Time `json:"due,omitzero"`

	slot    string        // the directory's name in the trash
	keep    time.Duration // what Keep means
	forever bool          // likewise
}

// isDue says whether the record's time is over.
func (r trashRecord) isDue(now time.Time) bool { return !r.forever && !r.Due.After(now) }

// bucket is where the index of the trash lists the record's directory.
func (r trashRecord) bucket() string { return bucketFor(r.Due, r.keep, r.forever) }

// isAt says whether the directory was that of a path, as far as the record tells.
func (r trashRecord) isAt(p string) bool { return r.Path == "" || r.Path == p }

// sameLife says whether the record was written by an earlier run of this very cleanup. A volume
// whose claim began again has the same name, but another time in its entry.
func (r trashRecord) sameLife(op operations.Operation, own *entry) bool {
	return r.isAt(op.Path) && r.Owner.owner() == own.owner() && r.Owner.When.Equal(own.When)
}

// slotName is a volume's name in the trash, for each of its lives.
func slotName(volume string, life int) string {
	if life == 1 {
		return volume
	}
	return volume + lifeMark + strconv.Itoa(life)
}

// lifeMark is in no volume's name.
const lifeMark = "~"

func volumeOf(slot string) string {
	volume, _, _ := strings.Cut(slot, lifeMark)
	return volume
}

// slot finds where in the trash the directory goes, or where this cleanup has already moved it.
func (b *batch) slot(ctx context.Context, op operations.Operation, own *entry) (name string, moved bool, err error) {
	for life := 1; ; life++ {
		name = slotName(op.Volume, life)
		_, err := b.trash.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, false, nil // a record may be there, of a run that died before its move
		}
		if err != nil {
			return "", false, err
		}
		record, err := b.readRecord(ctx, name)
		if err != nil {
			return "", false, err
		}
		if record != nil && record.sameLife(op, own) {
			return name, true, nil
		}
	}
}

func recordName(slot string) string { return wellknown.OwnerPrefix + slot }

func inTrash(name string) string { return path.Join(wellknown.TrashDirectory, name) }

// readRecord reads what is known of a slot; nil is nothing, and protects the directory.
func (b *batch) readRecord(ctx context.Context, slot string) (*trashRecord, error) {
	record, _, err := b.fs.openRecord(ctx, b.trash, slot)
	return record, err
}

// openRecord is readRecord, and says whether there is a record at all: one that cannot be read was
// cut off, or is a newer version's.
func (f *FileSystem) openRecord(ctx context.Context, trash *os.Root, slot string) (record *trashRecord, there bool, err error) {
	where := inTrash(recordName(slot))
	if err := f.before(ctx, "read "+where); err != nil {
		return nil, true, err
	}
	data, written, err := readFileTime(trash, recordName(slot), where)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	return parseRecord(slot, data, written), true, nil
}

// foundRecord is what openRecord gives.
type foundRecord struct {
	record *trashRecord
	there  bool
	err    error
}

// openRecords reads many records at once.
func (f *FileSystem) openRecords(ctx context.Context, trash *os.Root, slots []string, workers int) ([]foundRecord, error) {
	found := make([]foundRecord, len(slots))
	err := inParallel(ctx, workers, len(slots), func(i int) error {
		found[i].record, found[i].there, found[i].err = f.openRecord(ctx, trash, slots[i])
		return nil
	})
	return found, err
}

// eachRecord reads the records of the wanted slots, in pieces: a trash can be large.
func (b *batch) eachRecord(ctx context.Context, wanted func(slot string) bool, do func(*trashRecord)) error {
	listed, err := b.fs.list(ctx, b.trash, wellknown.TrashDirectory)
	if err != nil {
		return err
	}
	slots := slices.DeleteFunc(listed, func(name string) bool {
		slot, isRecord := strings.CutPrefix(name, wellknown.OwnerPrefix)
		return !isRecord || name == sweepingName || !wanted(slot)
	})
	for piece := range slices.Chunk(slots, checkedAtOnce) {
		for i, name := range piece {
			piece[i] = strings.TrimPrefix(name, wellknown.OwnerPrefix)
		}
		found, err := b.fs.openRecords(ctx, b.trash, piece, DefaultSweepWorkers)
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
	keep, forever, err := operations.ParseKeep(record.Keep)
	if err != nil {
		return nil
	}
	record.keep, record.forever = keep, forever
	if record.Due.IsZero() && !forever {
		record.Due = written.Add(keep)
	}
	return record
}

// entryAsRecord reads an entry of the ledger that a full server had no space to put a record beside:
// its file has the time when the directory is due.
func entryAsRecord(slot string, data []byte, written time.Time) *trashRecord {
	e, err := parseEntry(recordName(volumeOf(slot)), data)
	if err != nil {
		return nil
	}
	return &trashRecord{
		Owner: e, Volume: e.volume, Deleted: e.When, Due: written,
		slot: slot, keep: smallestStep, forever: written.Equal(neverDue()),
	}
}

// neverDue is a time that every server can give a file.
func neverDue() time.Time { return time.Unix(1<<31-1, 0) }

// record writes down what goes to a slot. The index comes first: what is in it by mistake does no
// harm, and what is not in it waits for the next check of the whole trash.
func (b *batch) record(ctx context.Context, op operations.Operation, own *entry, slot string) error {
	record, err := b.newRecord(ctx, op, own)
	if err != nil {
		return err
	}
	if err := b.index(ctx, record.bucket(), slot); err != nil {
		return err
	}
	data, err := encode(record)
	if err != nil {
		return fmt.Errorf("writing what goes to the trash: %w", err)
	}
	err = b.writeFile(ctx, b.trash, recordName(slot), inTrash(recordName(slot)), data)
	if isNoSpace(err) {
		return b.linkRecord(ctx, op, own, slot, record)
	}
	return err
}

func (b *batch) newRecord(ctx context.Context, op operations.Operation, own *entry) (trashRecord, error) {
	keep, forever, err := operations.ParseKeep(op.Keep)
	if err != nil {
		return trashRecord{}, err
	}
	now, err := b.clock.now(ctx)
	if err != nil {
		return trashRecord{}, err
	}
	record := trashRecord{Owner: own, Volume: op.Volume, Path: op.Path, Deleted: now, Keep: op.Keep, keep: keep, forever: forever}
	if !forever {
		record.Due = now.Add(keep)
	}
	return record, nil
}

// index lists a slot as due at some time. On a full server the next sweep is made to check the whole
// trash instead.
func (b *batch) index(ctx context.Context, bucket, slot string) error {
	if err := b.openIndex(ctx); err != nil {
		return err
	}
	err := b.due.put(ctx, bucket, slot)
	if errors.Is(err, errNoIndex) {
		return b.due.wantCheck(ctx)
	}
	return err
}

func (b *batch) openIndex(ctx context.Context) (err error) {
	if b.due == nil {
		b.due, err = b.fs.openIndex(ctx)
	}
	return err
}

// linkRecord makes the owner's entry the record too, by a link, because a deletion must not need
// space: only it can free some. The entry's time becomes that when the directory is due.
func (b *batch) linkRecord(ctx context.Context, op operations.Operation, own *entry, slot string, record trashRecord) error {
	folder, err := b.ledger.tree.folder(ctx, op.Path)
	if err != nil {
		return err
	}
	due := record.Due
	if record.forever {
		due = neverDue()
	}
	where := inTrash(recordName(slot))
	if err := b.fs.before(ctx, "link "+where); err != nil {
		return err
	}
	if err := folder.Chtimes(own.fileName(), due, due); err != nil {
		return fmt.Errorf("setting the time of the owner %s: %w", own, err)
	}
	if err := ignoreMissing(b.trash.Remove(recordName(slot))); err != nil { // of an earlier run, or an earlier life
		return fmt.Errorf("removing %s: %w", where, err)
	}
	entryFile := path.Join(path.Base(wellknown.OwnersDirectory), op.Path, own.fileName())
	if err := b.fs.state.Link(entryFile, path.Join(path.Base(wellknown.TrashDirectory), recordName(slot))); err != nil {
		return fmt.Errorf("linking %s: %w", where, err)
	}
	return nil
}

// dropRecord forgets what is known of a slot, whose directory is in the trash no more.
func (b *batch) dropRecord(ctx context.Context, slot string) error {
	record, err := b.readRecord(ctx, slot)
	if err != nil {
		return err
	}
	if record != nil {
		if err := b.unindex(ctx, record); err != nil {
			return err
		}
	}
	return b.fs.dropRecord(ctx, b.trash, slot)
}

func (b *batch) unindex(ctx context.Context, record *trashRecord) error {
	if err := b.openIndex(ctx); err != nil {
		return err
	}
	return b.due.remove(ctx, record.bucket(), record.slot)
}

func (f *FileSystem) dropRecord(ctx context.Context, trash *os.Root, slot string) error {
	where := inTrash(recordName(slot))
	if err := f.before(ctx, "forget "+where); err != nil {
		return err
	}
	if err := ignoreMissing(trash.Remove(recordName(slot))); err != nil {
		return fmt.Errorf("removing %s: %w", where, err)
	}
	return nil
}
