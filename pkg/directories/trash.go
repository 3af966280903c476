package directories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// trashRecord says what a directory in the trash was. Its file is the directory's name with
// wellknown.OwnerPrefix, which no volume's name starts with.
type trashRecord struct {
	Owner   *entry    `json:"owner"` // the last one
	Volume  string    `json:"volume"`
	Path    string    `json:"path"`
	Deleted time.Time `json:"deleted"`
	Keep    string    `json:"keep,omitempty"`

	slot string // the directory's name in the trash
}

// due says whether the record's time is over. One that cannot be read is kept.
func (r trashRecord) due(now time.Time) (due bool, at time.Time) {
	keep, forever, err := parseKeep(r.Keep)
	if err != nil || forever {
		return false, time.Time{}
	}
	at = r.Deleted.Add(keep)
	return !at.After(now), at
}

// sameLife says whether the record was written by an earlier run of this very cleanup. A volume
// whose claim began again has the same name, but another time in its entry.
func (r trashRecord) sameLife(op Operation, own *entry) bool {
	return r.Path == op.Path && r.Owner.owner() == own.owner() && r.Owner.When.Equal(own.When)
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

// slot finds where in the trash the directory goes, or where this cleanup has already moved it.
func (b *batch) slot(op Operation, own *entry) (name string, moved bool, err error) {
	for life := 1; ; life++ {
		name = slotName(op.Volume, life)
		_, err := b.trash.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, false, nil // a record may be there, of a run that died before its move
		}
		if err != nil {
			return "", false, err
		}
		record, err := readRecord(b.trash, name)
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

// readRecord reads what is known of a slot; nil is nothing.
func readRecord(trash *os.Root, slot string) (*trashRecord, error) {
	data, err := readFile(trash, recordName(slot), inTrash(recordName(slot)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	record := &trashRecord{slot: slot}
	if err := json.Unmarshal(data, record); err != nil || record.Owner == nil {
		return nil, nil //nolint:nilerr // what cannot be read protects its directory, like none
	}
	record.Owner.volume = record.Volume
	return record, nil
}

func (b *batch) writeRecord(ctx context.Context, slot string, record trashRecord) error {
	data, err := marshal(record)
	if err != nil {
		return fmt.Errorf("writing what goes to the trash: %w", err)
	}
	return b.writeFile(ctx, b.trash, recordName(slot), inTrash(recordName(slot)), append(data, '\n'))
}

func (b *batch) dropRecord(ctx context.Context, slot string) error {
	return b.fs.dropRecord(ctx, b.trash, slot)
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

// listTrash gives the directories in the trash, and every record, also those whose directory is
// not there.
func listTrash(trash *os.Root) (slots []string, records []trashRecord, err error) {
	listed, err := names(trash, wellknown.TrashDirectory)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range listed {
		slot, isRecord := strings.CutPrefix(name, wellknown.OwnerPrefix)
		if !isRecord {
			slots = append(slots, name)
			continue
		}
		if name == sweepingName {
			continue
		}
		record, err := readRecord(trash, slot)
		if err != nil {
			return nil, nil, err
		}
		if record != nil {
			records = append(records, *record)
		}
	}
	return slots, records, nil
}
