package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// dueName is the directory, in ours, of the index of the trash. It is not in the trash, where an
// older mountjob would take it for a record.
const dueName = "due"

// dueIndex tells a sweep what is due without reading the records of what is not: it has a directory
// for each time, named after it, and in that an empty one for each slot. A slot may be listed that
// is gone, or under a time that is not its own: the record decides.
type dueIndex struct {
	fs     *FileSystem
	folder *os.Root // nil when the server has no space to make it

	mu      sync.Mutex
	buckets map[string]*os.Root // guarded by mu
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
	folder, err := f.stateFolder(ctx, dueName)
	if err != nil && !isNoSpace(err) {
		return nil, err
	}
	return &dueIndex{fs: f, folder: folder, buckets: map[string]*os.Root{}}, nil
}

func inIndex(names ...string) string {
	return child(wellknown.StateDirectory, strings.Join(append([]string{dueName}, names...), "/"))
}

// errNoIndex is for a server that had no space for the index, and perhaps has none still.
var errNoIndex = fmt.Errorf("%s is not there", inIndex())

// put lists a slot. errNoIndex says that there is no space to do so.
func (x *dueIndex) put(ctx context.Context, bucket, slot string) error {
	folder, err := x.bucket(ctx, bucket, true)
	if err != nil {
		return err
	}
	if err := x.fs.beforeGrowing(ctx, "index "+inTrash(slot)); err != nil {
		return noIndexWithoutSpace(err)
	}
	if err := folder.Mkdir(slot, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return noIndexWithoutSpace(fmt.Errorf("making %s: %w", inIndex(bucket, slot), err))
	}
	return nil
}

func noIndexWithoutSpace(err error) error {
	if isNoSpace(err) {
		return errNoIndex
	}
	return err
}

// remove takes a slot off the list; no bucket is that of a slot that is not listed.
func (x *dueIndex) remove(ctx context.Context, bucket, slot string) error {
	if bucket == "" {
		return nil
	}
	folder, err := x.bucket(ctx, bucket, false)
	if errors.Is(err, errNoIndex) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = x.fs.before(ctx, "take "+inTrash(slot)+" off the index")
	}
	if err != nil {
		return err
	}
	if err := ignoreMissing(folder.Remove(slot)); err != nil {
		return fmt.Errorf("removing %s: %w", inIndex(bucket, slot), err)
	}
	return nil
}

// bucket opens a directory of the index, and makes it if wanted.
func (x *dueIndex) bucket(ctx context.Context, bucket string, wanted bool) (*os.Root, error) {
	if x.folder == nil {
		return nil, errNoIndex
	}
	if folder := x.opened(bucket, nil); folder != nil {
		return folder, nil
	}
	folder, err := x.fs.enter(ctx, x.folder, bucket, inIndex(bucket))
	if errors.Is(err, fs.ErrNotExist) && wanted {
		if err := x.makeBucket(ctx, bucket); err != nil {
			return nil, err
		}
		folder, err = x.fs.enter(ctx, x.folder, bucket, inIndex(bucket))
	}
	if err != nil {
		return nil, err
	}
	return x.opened(bucket, folder), nil
}

// opened is the one handle of a bucket, which is the given one if there was none.
func (x *dueIndex) opened(bucket string, folder *os.Root) *os.Root {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known := x.buckets[bucket]; known != nil {
		closeRoot(folder)
		return known
	}
	if folder != nil {
		x.buckets[bucket] = folder
	}
	return folder
}

func (x *dueIndex) makeBucket(ctx context.Context, bucket string) error {
	if err := x.fs.beforeGrowing(ctx, "make "+inIndex(bucket)); err != nil {
		return noIndexWithoutSpace(err)
	}
	if err := x.folder.Mkdir(bucket, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return noIndexWithoutSpace(fmt.Errorf("making %s: %w", inIndex(bucket), err))
	}
	return nil
}

// names lists the index: its buckets, and the mark of the last check.
func (x *dueIndex) names(ctx context.Context) ([]string, error) {
	if x.folder == nil {
		return nil, nil
	}
	found, err := x.fs.list(ctx, x.folder, inIndex())
	slices.Sort(found)
	return found, err
}

// slots lists a bucket.
func (x *dueIndex) slots(ctx context.Context, bucket string) ([]string, error) {
	folder, err := x.bucket(ctx, bucket, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // another sweep has removed it
	}
	if err != nil {
		return nil, err
	}
	return x.fs.list(ctx, folder, inIndex(bucket))
}

// dropBucket removes a bucket that is over and empty. The caller has the lock, so that no batch is
// about to fill it.
func (x *dueIndex) dropBucket(ctx context.Context, bucket string) error {
	x.forget(bucket)
	if err := x.fs.before(ctx, "remove "+inIndex(bucket)); err != nil {
		return err
	}
	err := ignoreMissing(x.folder.Remove(bucket))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("removing %s: %w", inIndex(bucket), err)
	}
	return nil
}

func (x *dueIndex) forget(bucket string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	closeRoot(x.buckets[bucket])
	delete(x.buckets, bucket)
}

// trim bounds the handles that are open between two pieces of work.
func (x *dueIndex) trim() {
	if x != nil && len(x.buckets) > maxOpen {
		x.closeBuckets()
	}
}

func (x *dueIndex) closeBuckets() {
	for _, folder := range x.buckets {
		closeRoot(folder)
	}
	clear(x.buckets)
}

func (x *dueIndex) close() {
	if x == nil {
		return
	}
	x.closeBuckets()
	closeRoot(x.folder)
}
