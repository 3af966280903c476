package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// sweepingName is the directory, in the trash, of what is being removed. It holds nothing that
// anybody could have back, so a sweep that died is gone on with without asking for records.
const sweepingName = wellknown.OwnerPrefix + wellknown.OwnerPrefix + "sweeping"

// SweepOptions say how the trash is emptied.
type SweepOptions struct {
	// Workers is how many directories are emptied, or records read, at once; 0 is
	// DefaultSweepWorkers.
	Workers int
	// Progress, if not nil, hears of every Every removals; one call at a time.
	Progress func(operations.Swept)
	Every    int64 // 0 is 1000
}

// DefaultSweepWorkers hide the round trips of an NFS server from each other.
const DefaultSweepWorkers = 64

// Sweep removes what is in the trash and was kept long enough by the server's clock. It takes the
// lock only for moments, so batches go on beside it, and can be stopped at any time: the next sweep
// goes on. What cannot be removed does not keep the rest from going.
//
// Directories are condemned in pieces, while those of earlier pieces are removed. What the index
// says to be due comes first; what the index does not know is looked for afterwards.
func (f *FileSystem) Sweep(ctx context.Context, options SweepOptions) (operations.Swept, error) {
	if options.Workers <= 0 {
		options.Workers = DefaultSweepWorkers
	}
	s := &sweep{fs: f, workers: options.Workers}
	defer s.close()
	if err := s.open(ctx); err != nil {
		return operations.Swept{}, err
	}
	condemn, stop := iter.Pull2(s.condemned(ctx))
	defer stop()
	r := newRemoval(f, s.sweeping, condemn, options)
	removed, err := r.run(ctx)
	s.swept.Removed, s.swept.Volumes = removed.Removed, removed.Volumes
	return s.swept, err
}

type sweep struct {
	fs       *FileSystem
	workers  int
	trash    *os.Root
	sweeping *os.Root
	index    *dueIndex
	now      time.Time // the server's
	swept    operations.Swept
}

func (s *sweep) open(ctx context.Context) (err error) {
	if s.trash, err = s.fs.stateFolder(ctx, path.Base(wellknown.TrashDirectory)); err != nil {
		return err
	}
	if s.sweeping, err = s.openSweeping(ctx); err != nil {
		return err
	}
	if s.index, err = s.fs.openIndex(ctx); err != nil {
		return err
	}
	s.now, err = (&serverClock{fs: s.fs}).now(ctx)
	return err
}

// openSweeping makes the directory only when it is not there: the server may be full.
func (s *sweep) openSweeping(ctx context.Context) (*os.Root, error) {
	where := inTrash(sweepingName)
	folder, err := s.fs.enter(ctx, s.trash, sweepingName, where)
	if !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	if err := s.fs.beforeGrowing(ctx, "make "+where); err != nil {
		return nil, err
	}
	if err := s.trash.Mkdir(sweepingName, privateDirectory); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("making %s: %w", where, err)
	}
	return s.fs.enter(ctx, s.trash, sweepingName, where)
}

func (s *sweep) close() {
	closeRoot(s.trash)
	closeRoot(s.sweeping)
	s.index.close()
}

// condemned moves what is due to where no restore finds it, and gives the new names, piece by piece.
func (s *sweep) condemned(ctx context.Context) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		buckets, err := s.index.names(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, bucket := range buckets {
			at, ok := bucketTime(bucket)
			if ok && at.After(s.now) {
				s.waitUntil(at)
			} else if ok && !s.condemnBucket(ctx, bucket, yield) {
				return
			}
		}
		s.check(ctx, buckets, yield)
	}
}

// condemnedAtOnce bounds how long batches wait for the lock.
const condemnedAtOnce = 64

// condemnBucket condemns what a bucket lists, all of which should be due. It says whether to go on.
func (s *sweep) condemnBucket(ctx context.Context, bucket string, yield func([]string, error) bool) bool {
	slots, err := s.index.slots(ctx, bucket)
	if err != nil {
		return yield(nil, err) && !IsStop(err)
	}
	for piece := range slices.Chunk(slots, condemnedAtOnce) {
		if !s.condemnSome(ctx, bucket, piece, yield) {
			return false
		}
	}
	if err := s.dropBucket(ctx, bucket); err != nil {
		return yield(nil, err) && !IsStop(err)
	}
	return true
}

// condemnSome condemns some slots under the lock. Each record is read there: the slot may have been
// emptied, or filled again, since it was listed.
func (s *sweep) condemnSome(ctx context.Context, bucket string, slots []string, yield func([]string, error) bool) bool {
	moved, err := s.moveSome(ctx, bucket, slots)
	return yield(moved, err) && ctx.Err() == nil && !IsStop(err)
}

func (s *sweep) moveSome(ctx context.Context, bucket string, slots []string) (moved []string, err error) {
	lock, err := s.fs.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	found, err := s.fs.openRecords(ctx, s.trash, slots, s.workers)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, slot := range slots {
		name, err := s.moveOne(ctx, bucket, slot, found[i])
		if name != "" {
			moved = append(moved, name)
		}
		errs = append(errs, err)
		if IsStop(err) {
			break
		}
	}
	return moved, errors.Join(errs...)
}

// moveOne moves one directory, then drops its record, then takes it off the index.
//
//	record        due   what is done
//	none          –     taken off the index: it was restored, or a cleanup died before its move
//	not readable  –     nothing
//	there         no    listed under its own time
//	there         yes   moved; a record without directory is of a cleanup that will write it again
func (s *sweep) moveOne(ctx context.Context, bucket, slot string, found foundRecord) (name string, err error) {
	switch {
	case found.err != nil:
		return "", found.err
	case !found.there:
		return "", s.index.remove(ctx, bucket, slot)
	case found.record == nil:
		return "", nil
	case !found.record.isDue(s.now):
		return "", s.listAgain(ctx, bucket, found.record)
	}
	name = unique("swept")
	err = s.fs.move(ctx, "condemn "+inTrash(slot), s.trash, slot, s.sweeping, name)
	if errors.Is(err, fs.ErrNotExist) {
		name, err = "", nil
	}
	if err != nil {
		return "", err
	}
	if err := s.fs.dropRecord(ctx, s.trash, slot); err != nil {
		return name, err
	}
	return name, s.index.remove(ctx, bucket, slot)
}

// listAgain puts a slot where its record belongs.
func (s *sweep) listAgain(ctx context.Context, bucket string, record *trashRecord) error {
	s.waitFor(record)
	own := record.bucket()
	if own == bucket {
		return nil
	}
	err := s.index.put(ctx, own, record.slot)
	if errors.Is(err, errNoIndex) {
		return nil // it stays where it is listed
	}
	if err != nil {
		return err
	}
	return s.index.remove(ctx, bucket, record.slot)
}

func (s *sweep) dropBucket(ctx context.Context, bucket string) error {
	if bucket == bucketAtOnce {
		return nil // the next deletion needs it again
	}
	lock, err := s.fs.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return s.index.dropBucket(ctx, bucket)
}

func (s *sweep) waitFor(record *trashRecord) {
	if at, ok := bucketTime(record.bucket()); ok && !at.IsZero() {
		s.waitUntil(at)
	} else if ok {
		s.waitUntil(record.Due)
	}
}

// waitUntil notes when the next sweep is due. NextIn is rounded up: a moment too early, sweep after
// sweep would find that the time has not come.
func (s *sweep) waitUntil(at time.Time) {
	if s.swept.Next.IsZero() || at.Before(s.swept.Next) {
		s.swept.Next = at
		s.swept.NextIn = int64(math.Ceil(at.Sub(s.now).Seconds()))
	}
}
