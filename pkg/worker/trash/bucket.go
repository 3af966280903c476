package trash

import (
	"context"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
)

// buckets lists the buckets, the trash itself first.
func (t *Trash) buckets(ctx context.Context) ([]string, error) {
	names, err := t.Names(ctx)
	return bucketsAmong(names), err
}

func bucketsAmong(names []string) []string {
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
		case bucket == ledger.BucketAtOnce && (name == StagingName || ledger.IsBucket(name)):
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
	if bucket == ledger.BucketAtOnce {
		names, err := t.Names(ctx)
		return contentsOf(bucket, names), err
	}
	d, err := t.Enter(ctx, bucket)
	if err != nil {
		return contents{}, fsroot.IgnoreMissing(err)
	}
	defer d.Close()
	names, err := d.Names(ctx)
	if fsroot.IsGone(err) {
		err = nil
	}
	return contentsOf(bucket, names), err
}

// listAll lists the whole trash, bucket by bucket.
func (t *Trash) listAll(ctx context.Context) ([]contents, error) {
	names, err := t.Names(ctx)
	if err != nil {
		return nil, err
	}
	buckets := bucketsAmong(names)
	all := make([]contents, len(buckets))
	all[0] = contentsOf(ledger.BucketAtOnce, names)
	err = fsroot.InParallel(ctx, fsroot.DefaultSweepWorkers, len(buckets)-1, func(i int) (err error) {
		all[i+1], err = t.list(ctx, buckets[i+1])
		return err
	})
	return all, err
}
