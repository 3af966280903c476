package trash

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
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// StagingName is the directory, in the trash, of what is being removed. No restore takes anything from
// there, so the next sweep goes on with what a sweep that died has left, without reading records.
const StagingName = wellknown.OwnerPrefix + wellknown.OwnerPrefix + "sweeping"

// Sweep removes what is in the trash and was kept long enough by the server's clock. It takes the
// lock only for moments, so batches go on beside it, and can be stopped at any time: the next sweep
// goes on. What cannot be removed does not keep the rest from going.
//
// Directories are staged in pieces, that is, moved out of the reach of restores, while those of
// earlier pieces are removed.
func Sweep(ctx context.Context, f *fsroot.FileSystem, options treewalk.Options) (operations.Swept, error) {
	s := &SweepRun{System: f}
	s.Selected = func(record *TrashRecord) bool { return record.IsDue(s.now) }
	return s.run(ctx, s.stage, options)
}

// SweepRun removes what is selected in the trash.
type SweepRun struct {
	System   *fsroot.FileSystem
	Workers  int
	Selected func(*TrashRecord) bool // what is removed
	trash    *Trash
	staging  *fsroot.Dir
	now      time.Time // the server's
	swept    operations.Swept
}

// run removes what stage gives.
func (s *SweepRun) run(ctx context.Context, stage func(context.Context) iter.Seq2[[]string, error], options treewalk.Options) (operations.Swept, error) {
	if options.Workers <= 0 {
		options.Workers = fsroot.DefaultSweepWorkers
	}
	s.Workers = options.Workers
	defer s.Close()
	if err := s.Open(ctx); err != nil {
		return operations.Swept{}, err
	}
	next, stop := iter.Pull2(stage(ctx))
	defer stop()
	removed, err := treewalk.NewRemoval(s.System, s.staging, next, options).Run(ctx)
	s.swept.Removed, s.swept.Volumes = removed.Removed, removed.Volumes
	return s.swept, err
}

// Open opens the trash, and asks the server for its time.
func (s *SweepRun) Open(ctx context.Context) (err error) {
	if s.trash, err = OpenTrash(ctx, s.System); err != nil {
		return err
	}
	if s.staging, err = s.trash.Ensure(ctx, StagingName); err != nil {
		return err
	}
	s.now, err = s.System.ServerNow(ctx)
	return err
}

// Close closes the handles.
func (s *SweepRun) Close() {
	s.staging.Close()
	s.trash.Close()
}

// emitFunc hands names in the staging directory, or an error, to the removal. It reports whether to go on.
type emitFunc func(names []string, err error) bool

// stoppable makes an emitFunc that ends when ctx does.
func stoppable(ctx context.Context, yield emitFunc) emitFunc {
	return func(names []string, err error) bool {
		return yield(names, err) && ctx.Err() == nil && !fsroot.IsStop(err)
	}
}

// stage moves what is due to the staging directory, and gives the new names, piece by piece.
func (s *SweepRun) stage(ctx context.Context) iter.Seq2[[]string, error] {
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
			at, ok := ledger.BucketTime(bucket)
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
func (s *SweepRun) count(ctx context.Context) error {
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

// StagedAtOnce bounds how long batches wait for the lock.
const StagedAtOnce = 64

// stageBucket stages what is in a bucket, all of which should be due, and removes the bucket.
func (s *SweepRun) stageBucket(ctx context.Context, bucket string, emit emitFunc) (goOn bool) {
	listed, err := s.trash.list(ctx, bucket)
	for piece := range slices.Chunk(listed.records, StagedAtOnce) {
		if !emit(s.StageSome(ctx, piece)) {
			return false
		}
	}
	if err == nil && bucket != ledger.BucketAtOnce {
		err = s.dropBucket(ctx, bucket)
	}
	return err == nil || emit(nil, err)
}

// dropBucket removes a bucket, if it is empty, under the lock: no batch is about to fill it.
func (s *SweepRun) dropBucket(ctx context.Context, bucket string) error {
	lock, err := s.System.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	err = s.trash.RemoveEntry(ctx, bucket)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// StageSome stages some slots under the lock. Each record is read there: the slot may have been
// emptied, or filled again, since it was listed.
func (s *SweepRun) StageSome(ctx context.Context, slots []string) (staged []string, err error) {
	lock, err := s.System.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	found, err := s.trash.readRecords(ctx, slots, s.Workers)
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
		if fsroot.IsStop(err) || errors.Is(err, fsroot.ErrLockLost) {
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
func (s *SweepRun) stageOne(ctx context.Context, lock *fsroot.HeldLock, slot string, found foundRecord) (name string, err error) {
	switch {
	case found.err != nil || !found.there:
		return "", found.err
	case found.record == nil:
		s.swept.Unknown++
		return "", nil
	case !s.Selected(found.record):
		if !found.record.Forever {
			s.waitUntil(found.record.Due)
		}
		return "", nil
	}
	if err := lock.Check(); err != nil { // what is there now may not be what the record is about
		return "", err
	}
	name = fsroot.Unique("swept")
	err = s.trash.MoveTo(ctx, "stage "+s.trash.At(slot), slot, s.staging, name)
	if errors.Is(err, fs.ErrNotExist) {
		name, err = "", nil
	}
	if err != nil {
		return "", err
	}
	return name, s.trash.DropRecord(ctx, slot)
}

// waitUntil notes when the next sweep is due. NextIn is rounded up: a moment too early, sweep after
// sweep would find that the time has not come.
func (s *SweepRun) waitUntil(at time.Time) {
	if s.swept.Next.IsZero() || at.Before(s.swept.Next) {
		s.swept.Next = at
		s.swept.NextIn = int64(math.Ceil(at.Sub(s.now).Seconds()))
	}
}
