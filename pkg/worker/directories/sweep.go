package directories

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"math"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// stagingName is the directory, in the trash, of what is being removed. No restore takes anything from
// there, so the next sweep goes on with what a sweep that died has left, without reading records.
const stagingName = wellknown.OwnerPrefix + wellknown.OwnerPrefix + "sweeping"

// Sweep removes what is in the trash and was kept long enough by the server's clock. It takes the
// lock only for moments, so batches go on beside it, and can be stopped at any time: the next sweep
// goes on. What cannot be removed does not keep the rest from going.
//
// Directories are staged in pieces, that is, moved out of the reach of restores, while those of
// earlier pieces are removed.
func (f *FileSystem) Sweep(ctx context.Context, options SweepOptions) (operations.Swept, error) {
	s := &sweep{fs: f}
	s.selected = func(record *trashRecord) bool { return record.isDue(s.now) }
	return s.run(ctx, s.stage, options)
}

type sweep struct {
	fs       *FileSystem
	workers  int
	selected func(*trashRecord) bool // what is removed
	trash    *trash
	staging  *dir
	now      time.Time // the server's
	swept    operations.Swept
}

// run removes what stage gives.
func (s *sweep) run(ctx context.Context, stage func(context.Context) iter.Seq2[[]string, error], options SweepOptions) (operations.Swept, error) {
	if options.Workers <= 0 {
		options.Workers = DefaultSweepWorkers
	}
	s.workers = options.Workers
	defer s.close()
	if err := s.open(ctx); err != nil {
		return operations.Swept{}, err
	}
	next, stop := iter.Pull2(stage(ctx))
	defer stop()
	removed, err := newRemoval(s.fs, s.staging, next, options).run(ctx)
	s.swept.Removed, s.swept.Volumes = removed.Removed, removed.Volumes
	return s.swept, err
}

func (s *sweep) open(ctx context.Context) (err error) {
	if s.trash, err = s.fs.openTrash(ctx); err != nil {
		return err
	}
	if s.staging, err = s.trash.ensure(ctx, stagingName); err != nil {
		return err
	}
	s.now, err = s.fs.serverNow(ctx)
	return err
}

func (s *sweep) close() {
	s.staging.close()
	s.trash.close()
}

// emitFunc hands names in the staging directory, or an error, to the removal. It reports whether to go on.
type emitFunc func(names []string, err error) bool

// stoppable makes an emitFunc that ends when ctx does.
func stoppable(ctx context.Context, yield emitFunc) emitFunc {
	return func(names []string, err error) bool {
		return yield(names, err) && ctx.Err() == nil && !IsStop(err)
	}
}

// stage moves what is due to the staging directory, and gives the new names, piece by piece.
func (s *sweep) stage(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		emit := stoppable(ctx, yield)
		if !s.stageAbandoned(ctx, emit) {
			return
		}
		buckets, err := s.trash.buckets(ctx)
		if err != nil {
			emit(nil, err)
			return
		}
		for _, bucket := range buckets {
			at, ok := bucketTime(bucket)
			if ok && at.After(s.now) {
				s.waitUntil(at)
			} else if ok && !s.stageBucket(ctx, bucket, emit) {
				return
			}
		}
		if err := s.count(ctx); err != nil {
			emit(nil, err)
		}
	}
}

// count counts what stays.
func (s *sweep) count(ctx context.Context) error {
	all, err := s.trash.listAll(ctx)
	for _, c := range all {
		s.swept.Kept += len(c.directories)
		for _, slot := range c.directories {
			if _, hasRecord := slices.BinarySearch(c.records, slot); !hasRecord {
				s.swept.Unknown++
			}
		}
	}
	return err
}

// stagedAtOnce bounds how long batches wait for the lock.
const stagedAtOnce = 64

// stageBucket stages what is in a bucket, all of which should be due, and removes the bucket.
func (s *sweep) stageBucket(ctx context.Context, bucket string, emit emitFunc) (goOn bool) {
	listed, err := s.trash.list(ctx, bucket)
	for piece := range slices.Chunk(listed.records, stagedAtOnce) {
		if !emit(s.stageSome(ctx, piece)) {
			return false
		}
	}
	if err == nil && bucket != bucketAtOnce {
		err = s.dropBucket(ctx, bucket)
	}
	return err == nil || emit(nil, err)
}

// dropBucket removes a bucket, if it is empty, under the lock: no batch is about to fill it.
func (s *sweep) dropBucket(ctx context.Context, bucket string) error {
	lock, err := s.fs.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = s.trash.remove(ctx, bucket)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// stageSome stages some slots under the lock. Each record is read there: the slot may have been
// emptied, or filled again, since it was listed.
func (s *sweep) stageSome(ctx context.Context, slots []string) (staged []string, err error) {
	lock, err := s.fs.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	found, err := s.trash.readRecords(ctx, slots, s.workers)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, slot := range slots {
		name, err := s.stageOne(ctx, lock, slot, found[i])
		if name != "" {
			staged = append(staged, name)
		}
		errs = append(errs, err)
		if IsStop(err) || errors.Is(err, errLockLost) {
			break
		}
	}
	return staged, errors.Join(errs...)
}

// stageOne moves one directory, then drops its record.
//
//	record        due   what is done
//	none          –     nothing: it was restored
//	not readable  –     nothing
//	there         no    nothing, until its time has come
//	there         yes   moved; a record without directory is of a cleanup that will write it again
func (s *sweep) stageOne(ctx context.Context, lock *heldLock, slot string, found foundRecord) (name string, err error) {
	switch {
	case found.err != nil || !found.there:
		return "", found.err
	case found.record == nil:
		s.swept.Unknown++
		return "", nil
	case !s.selected(found.record):
		if !found.record.forever {
			s.waitUntil(found.record.Due)
		}
		return "", nil
	}
	if err := lock.check(); err != nil { // what is there now may not be what the record is about
		return "", err
	}
	name = unique("swept")
	err = s.trash.move(ctx, "stage "+s.trash.at(slot), slot, s.staging, name)
	if errors.Is(err, fs.ErrNotExist) {
		name, err = "", nil
	}
	if err != nil {
		return "", err
	}
	return name, s.trash.dropRecord(ctx, slot)
}

// waitUntil notes when the next sweep is due. NextIn is rounded up: a moment too early, sweep after
// sweep would find that the time has not come.
func (s *sweep) waitUntil(at time.Time) {
	if s.swept.Next.IsZero() || at.Before(s.swept.Next) {
		s.swept.Next = at
		s.swept.NextIn = int64(math.Ceil(at.Sub(s.now).Seconds()))
	}
}
