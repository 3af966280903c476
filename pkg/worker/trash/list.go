package trash

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// buckets returns the buckets among the names of the trash, the trash itself first.
func buckets(names []string) []string {
	buckets := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !ledger.IsBucket(name) })
	slices.Sort(buckets)
	return append([]string{ledger.BucketAtOnce}, buckets...)
}

// contents are the slots of a bucket that have a directory, and those that have a record.
type contents struct{ directories, records []string }

func contentsOf(bucket string, names []string) (c contents) {
	slices.Sort(names)
	for _, name := range names {
		record, isRecord := strings.CutPrefix(name, wellknown.OwnerPrefix)
		switch {
		case bucket == ledger.BucketAtOnce && (name == stagingName || ledger.IsBucket(name)):
		case isRecord:
			c.records = append(c.records, path.Join(bucket, record))
		default:
			c.directories = append(c.directories, path.Join(bucket, name))
		}
	}
	return c
}

// list lists a bucket. One that a sweep has removed is empty.
func (t *Trash) list(ctx context.Context, bucket string) (contents, error) {
	d, err := t.Enter(ctx, cmp.Or(bucket, "."))
	if err != nil {
		return contents{}, fsroot.IgnoreMissing(err)
	}
	defer d.Close()
	names, err := d.Names(ctx)
	if bucket != ledger.BucketAtOnce && fsroot.IsGone(err) {
		err = nil
	}
	return contentsOf(bucket, names), err
}

func (t *Trash) listAll(ctx context.Context) (all contents, err error) {
	names, err := t.Names(ctx)
	if err != nil {
		return contents{}, err
	}
	buckets := buckets(names)
	parts := make([]contents, len(buckets))
	parts[0] = contentsOf(ledger.BucketAtOnce, names)
	err = fsroot.InParallel(ctx, fsroot.DefaultSweepWorkers, len(buckets)-1, func(i int) (err error) {
		parts[i+1], err = t.list(ctx, buckets[i+1])
		return err
	})
	for _, c := range parts {
		all.directories, all.records = append(all.directories, c.directories...), append(all.records, c.records...)
	}
	return all, err
}

// List gives the directories in the trash, by their paths in it, without the lock: what is moved may be missing.
func List(ctx context.Context, f *fsroot.FileSystem, emit func(requests.Trashed) error) error {
	d, err := f.State.Enter(ctx, path.Base(wellknown.TrashDirectory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t := &Trash{d}
	defer t.Close()
	all, err := t.listAll(ctx)
	if err != nil {
		return err
	}
	return t.eachFound(ctx, all.directories, func(found foundRecord) error {
		if !found.there { // a sweep or a restore may have taken both since they were listed
			if _, err := t.Inspect(found.slot); err != nil {
				return fsroot.IgnoreMissing(err)
			}
		}
		return emit(trashed(found.slot, found.record))
	})
}

// trashed describes a directory, and limits what its record contains: root on the file system can write anything there.
func trashed(slot string, record *Record) requests.Trashed {
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
