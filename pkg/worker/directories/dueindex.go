package directories

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// dueName is the directory, in wellknown.StateDirectory, of the index of the trash. It is not in the
// trash, where an older mountjob would take it for a record.
const dueName = "due"

// dueIndex lists when what is in the trash is due, so that a sweep need not read the records of what
// is not: it has a directory for each time, named after it, and in that an empty one for each slot.
// A slot may be listed that is gone, or under a time that is not its own: the record decides.
type dueIndex struct {
	tree *tree // of buckets; nil when the server has no space to make the index
}

// Buckets that have no time.
const (
	bucketAtOnce = "at-once"
	bucketNever  = "never"
)

const bucketLayout = "20060102T150405Z"

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

// bucketTime is when what is in a bucket is due; zero is at once. What has another name is no
// bucket with a time.
func bucketTime(bucket string) (at time.Time, ok bool) {
	if bucket == bucketAtOnce {
		return time.Time{}, true
	}
	at, err := time.Parse(bucketLayout, bucket)
	return at, err == nil
}

func (f *FileSystem) openIndex(ctx context.Context) (*dueIndex, error) {
	d, err := f.state.ensure(ctx, dueName)
	if isNoSpace(err) {
		return &dueIndex{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &dueIndex{newTree(d, makePrivate)}, nil
}

// errNoIndex is the error of a server that had no space for the index.
var errNoIndex = fmt.Errorf("%s is not there: %w", path.Join(wellknown.StateDirectory, dueName), syscall.ENOSPC)

// put lists a slot. If isNoSpace, the server has no space for that.
func (x *dueIndex) put(ctx context.Context, bucket, slot string) error {
	if x.tree == nil {
		return errNoIndex
	}
	d, err := x.tree.ensure(ctx, "/"+bucket)
	if err != nil {
		return err
	}
	return d.mkdir(ctx, slot)
}

// remove takes a slot off the list; no bucket is that of a slot that is not listed.
func (x *dueIndex) remove(ctx context.Context, bucket, slot string) error {
	if bucket == "" || x.tree == nil {
		return nil
	}
	d, err := x.tree.dir(ctx, "/"+bucket)
	if err != nil {
		return ignoreMissing(err)
	}
	return d.remove(ctx, slot)
}

// names lists the index: its buckets, and the mark of the last check.
func (x *dueIndex) names(ctx context.Context) ([]string, error) {
	if x.tree == nil {
		return nil, nil
	}
	names, err := x.tree.base.names(ctx)
	slices.Sort(names)
	return names, err
}

// slots lists a bucket; none if another sweep has removed it.
func (x *dueIndex) slots(ctx context.Context, bucket string) ([]string, error) {
	d, err := x.tree.dir(ctx, "/"+bucket)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	names, err := d.names(ctx)
	if isGone(err) {
		return nil, nil
	}
	return names, err
}

// dropMarks removes the marks of checks but one, "" for all. Without a mark the next sweep checks
// the whole trash.
func (x *dueIndex) dropMarks(ctx context.Context, names []string, but string) error {
	for _, name := range names {
		if !strings.HasPrefix(name, checkPrefix) || name == but {
			continue
		}
		if err := x.tree.base.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
