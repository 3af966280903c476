package directories

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// ListTrash gives the directories in the trash, by their paths in it. It changes nothing, and
// takes no lock: what is moved meanwhile may be missing.
func (f *FileSystem) ListTrash(ctx context.Context, emit func(requests.Trashed) error) error {
	d, err := f.state.enter(ctx, path.Base(wellknown.TrashDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t := &trash{d}
	defer t.close()
	return t.eachDirectory(ctx, func(slot string, record *trashRecord) error {
		return emit(trashed(slot, record))
	})
}

// eachDirectory visits the directories in the trash with their records; nil is none that can be read.
func (t *trash) eachDirectory(ctx context.Context, visit func(slot string, record *trashRecord) error) error {
	all, err := t.listAll(ctx)
	if err != nil {
		return err
	}
	var slots []string
	for _, c := range all {
		slots = append(slots, c.directories...)
	}
	for piece := range slices.Chunk(slots, recordsAtOnce) {
		found, err := t.readRecords(ctx, piece, DefaultSweepWorkers)
		for i := 0; i < len(piece) && err == nil; i++ {
			err = t.visitFound(piece[i], found[i], visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *trash) visitFound(slot string, found foundRecord, visit func(string, *trashRecord) error) error {
	if found.err != nil {
		return found.err
	}
	if !found.there { // a sweep or a restore may have taken both since they were listed
		if _, err := t.stat(slot); err != nil {
			return ignoreMissing(err)
		}
	}
	return visit(slot, found.record)
}

// trashed describes a directory. What a record contains is limited: whoever is root on the file system can
// write anything there.
func trashed(slot string, record *trashRecord) requests.Trashed {
	if record == nil {
		return requests.Trashed{Slot: slot, Unknown: true}
	}
	name := func(text string) string { return operations.Truncate(text, wellknown.MaxComponentBytes) }
	t := requests.Trashed{
		Slot: slot, Volume: name(record.Volume), Path: operations.Truncate(record.Path, wellknown.MaxPathBytes),
		Cluster: name(record.Owner.Cluster), Namespace: name(record.Owner.Namespace), NamespaceUID: name(record.Owner.NamespaceUID),
		Class: name(record.Owner.Class), Claim: name(record.Owner.Claim), ClaimUID: name(record.Owner.ClaimUID),
		Deleted: record.Deleted, Forever: record.forever,
	}
	if !record.forever {
		t.Due = record.Due
	}
	return t
}
