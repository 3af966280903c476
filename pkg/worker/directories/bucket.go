package directories

import (
	"context"
	"path"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// buckets lists the buckets, the trash itself first.
func (t *trash) buckets(ctx context.Context) ([]string, error) {
	names, err := t.names(ctx)
	return bucketsAmong(names), err
}

func bucketsAmong(names []string) []string {
	buckets := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isBucket(name) })
	slices.Sort(buckets)
	return append([]string{bucketAtOnce}, buckets...)
}

// contents are the slots of a bucket that have a directory, and those that have a record.
type contents struct{ directories, records []string }

func contentsOf(bucket string, names []string) (c contents) {
	slices.Sort(names)
	for _, name := range names {
		record, isRecord := strings.CutPrefix(name, wellknown.OwnerPrefix)
		switch {
		case bucket == bucketAtOnce && (name == stagingName || isBucket(name)):
		case isRecord:
			c.records = append(c.records, path.Join(bucket, record))
		default:
			c.directories = append(c.directories, path.Join(bucket, name))
		}
	}
	return c
}

// list lists a bucket. One that a sweep has removed is empty.
func (t *trash) list(ctx context.Context, bucket string) (contents, error) {
	if bucket == bucketAtOnce {
		names, err := t.names(ctx)
		return contentsOf(bucket, names), err
	}
	d, err := t.enter(ctx, bucket)
	if err != nil {
		return contents{}, ignoreMissing(err)
	}
	defer d.close()
	names, err := d.names(ctx)
	if isGone(err) {
		err = nil
	}
	return contentsOf(bucket, names), err
}

// listAll lists the whole trash, bucket by bucket.
func (t *trash) listAll(ctx context.Context) ([]contents, error) {
	names, err := t.names(ctx)
	if err != nil {
		return nil, err
	}
	buckets := bucketsAmong(names)
	all := make([]contents, len(buckets))
	all[0] = contentsOf(bucketAtOnce, names)
	err = inParallel(ctx, DefaultSweepWorkers, len(buckets)-1, func(i int) (err error) {
		all[i+1], err = t.list(ctx, buckets[i+1])
		return err
	})
	return all, err
}
