package directories

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// A bucket is a directory in the trash for what is due at one time, which is its name. So a sweep reads nothing
// that is not due. What is due at once is in the trash itself, and so is what a full server had no space to make a
// bucket for. No volume has the name of a bucket. The record of a directory decides when it is removed.
const (
	bucketAtOnce = ""
	bucketNever  = "NEVER"
	bucketLayout = "20060102T150405Z"
)

// Times are rounded up, so that a bucket whose time is over holds nothing that is not due. Steps
// that grow with the time to keep leave a hundred buckets for each, and a delay of a hundredth.
const (
	smallestStep = time.Second
	largestStep  = 24 * time.Hour
	stepsInKeep  = 100
)

func bucketFor(due time.Time, keep time.Duration, forever bool) string {
	switch {
	case forever:
		return bucketNever
	case keep == 0:
		return bucketAtOnce
	}
	step := min(max((keep/stepsInKeep).Truncate(time.Second), smallestStep), largestStep)
	up := due.Truncate(step)
	if up.Before(due) {
		up = up.Add(step)
	}
	return up.UTC().Format(bucketLayout)
}

// bucketTime returns when a bucket is due: zero is at once, not ok never.
func bucketTime(bucket string) (at time.Time, ok bool) {
	if bucket == bucketAtOnce {
		return time.Time{}, true
	}
	at, err := time.Parse(bucketLayout, bucket)
	return at, err == nil
}

func isBucket(name string) bool {
	_, hasTime := bucketTime(name)
	return hasTime || name == bucketNever
}

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
