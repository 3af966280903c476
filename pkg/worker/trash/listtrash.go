package trash

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// ListTrash gives the directories in the trash, by their paths in it. It changes nothing, and
// takes no lock: what is moved meanwhile may be missing.
func ListTrash(ctx context.Context, f *fsroot.FileSystem, emit func(requests.Trashed) error) error {
	d, err := f.State.Enter(ctx, path.Base(wellknown.TrashDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t := &Trash{d}
	defer t.Close()
	return t.eachDirectory(ctx, func(slot string, record *TrashRecord) error {
		return emit(trashed(slot, record))
	})
}

// eachDirectory visits the directories in the trash with their records; nil is none that can be read.
func (t *Trash) eachDirectory(ctx context.Context, visit func(slot string, record *TrashRecord) error) error {
	all, err := t.listAll(ctx)
	if err != nil {
		return err
	}
	var slots []string
	for _, c := range all {
		slots = append(slots, c.directories...)
	}
	for piece := range slices.Chunk(slots, recordsAtOnce) {
		found, err := t.readRecords(ctx, piece, fsroot.DefaultSweepWorkers)
		for i := 0; i < len(piece) && err == nil; i++ {
			err = t.visitFound(piece[i], found[i], visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Trash) visitFound(slot string, found foundRecord, visit func(string, *TrashRecord) error) error {
	if found.err != nil {
		return found.err
	}
	if !found.there { // a sweep or a restore may have taken both since they were listed
		if _, err := t.Inspect(slot); err != nil {
			return fsroot.IgnoreMissing(err)
		}
	}
	return visit(slot, found.record)
}

// trashed describes a directory. What a record contains is limited: whoever is root on the file system can
// write anything there.
func trashed(slot string, record *TrashRecord) requests.Trashed {
	if record == nil {
		return requests.Trashed{Slot: slot, Unknown: true}
	}
	name := func(text string) string { return operations.Truncate(text, wellknown.MaxComponentBytes) }
	t := requests.Trashed{
		Slot: slot, Volume: name(record.Volume), Path: operations.Truncate(record.Path, wellknown.MaxPathBytes),
		Cluster: name(record.Owner.Cluster), Namespace: name(record.Owner.Namespace), NamespaceUID: name(record.Owner.NamespaceUID),
		Class: name(record.Owner.Class), Claim: name(record.Owner.Claim), ClaimUID: name(record.Owner.ClaimUID),
		Deleted: record.Deleted, Forever: record.Forever,
	}
	if !record.Forever {
		t.Due = record.Due
	}
	return t
}
