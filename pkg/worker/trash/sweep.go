package trash

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// stagingName is the directory, in the trash, of what is being removed. No restore takes anything from
// there, so the next sweep goes on with what a sweep that died has left, without reading records.
const stagingName = wellknown.OwnerPrefix + wellknown.OwnerPrefix + "sweeping"

// Sweep removes what was kept long enough in the trash by the server's clock. It takes the lock only for moments, so
// batches go on beside it, and can be stopped at any time: the next sweep goes on. What cannot be removed does not keep
// the rest from going. Directories are staged in pieces, that is, moved out of the reach of restores, while those of
// earlier pieces are removed.
func Sweep(ctx context.Context, f *fsroot.FileSystem, options treewalk.Options) (operations.Swept, error) {
	s := &sweep{system: f}
	s.selected = func(record *Record) bool { return record.isDue(s.now) }
	return s.run(ctx, s.stage, options)
}

// Empty removes what an administrator has selected, whether its time is over or not, as Sweep does.
func Empty(ctx context.Context, f *fsroot.FileSystem, selection requests.Selection, options treewalk.Options) (operations.Swept, error) {
	s := &sweep{system: f, selected: func(record *Record) bool { return selection.Has(trashed(record.Slot, record)) }}
	return s.run(ctx, s.stageSelected, options)
}

type sweep struct {
	system   *fsroot.FileSystem
	workers  int
	selected func(*Record) bool
	trash    *Trash
	staging  *fsroot.Dir
	now      time.Time // the server's
	swept    operations.Swept
}

// emitFunc hands names in the staging directory, or an error, to the removal. What cannot be staged does not keep the
// rest from going, unless the sweep is stopped and wants no more.
type emitFunc func(names []string, err error) (more bool)

func (s *sweep) run(ctx context.Context, stage func(context.Context, emitFunc), options treewalk.Options) (operations.Swept, error) {
	s.workers = cmp.Or(options.Workers, fsroot.DefaultSweepWorkers)
	defer s.close()
	if err := s.open(ctx); err != nil {
		return operations.Swept{}, err
	}
	staged := func(yield func([]string, error) bool) {
		stage(ctx, func(names []string, err error) bool {
			return yield(names, err) && ctx.Err() == nil && !fsroot.IsStop(err)
		})
	}
	removed, err := treewalk.Empty(ctx, treewalk.NewWalkers(s.system, s.workers-1, 0), s.staging, staged, options)
	s.swept.Removed, s.swept.Volumes = removed.Removed, removed.Volumes
	return s.swept, err
}

func (s *sweep) open(ctx context.Context) (err error) {
	if s.trash, err = Open(ctx, s.system); err != nil {
		return err
	}
	if s.staging, err = s.trash.Ensure(ctx, stagingName); err != nil {
		return err
	}
	s.now, err = s.system.ServerNow(ctx)
	return err
}

func (s *sweep) close() {
	s.staging.Close()
	s.trash.Close()
}

// stage moves what is due to the staging directory, and emits the new names, piece by piece.
func (s *sweep) stage(ctx context.Context, emit emitFunc) {
	if !s.stageAbandoned(ctx, emit) {
		return
	}
	names, err := s.trash.Names(ctx)
	if err != nil {
		emit(nil, err)
		return
	}
	for _, bucket := range buckets(names) {
		at, ok := ledger.BucketTime(bucket)
		if ok && at.After(s.now) {
			s.waitUntil(at)
		} else if ok && !s.stageBucket(ctx, bucket, emit) {
			return
		}
	}
	emit(nil, s.count(ctx))
}

// stageSelected moves what is selected to the staging directory, bucket by bucket.
func (s *sweep) stageSelected(ctx context.Context, emit emitFunc) {
	var slots []string
	err := s.trash.eachRecord(ctx, func(record *Record) {
		if s.selected(record) {
			slots = append(slots, record.Slot)
		} else {
			s.swept.Kept++
		}
	})
	if err != nil {
		emit(nil, err)
		return
	}
	slices.Sort(slots)
	s.stagePieces(ctx, slots, emit)
}

func (s *sweep) count(ctx context.Context) error {
	all, err := s.trash.listAll(ctx)
	s.swept.Kept += len(all.directories)
	slices.Sort(all.records)
	for _, slot := range all.directories {
		if _, hasRecord := slices.BinarySearch(all.records, slot); !hasRecord {
			s.swept.Unknown++
		}
	}
	return err
}

// stagedAtOnce bounds how long batches wait for the lock.
const stagedAtOnce = 64

func (s *sweep) stagePieces(ctx context.Context, slots []string, emit emitFunc) (more bool) {
	for piece := range slices.Chunk(slots, stagedAtOnce) {
		if !emit(s.stageSome(ctx, piece)) {
			return false
		}
	}
	return true
}

// stageBucket stages what is in a bucket, all of which should be due, and removes the bucket.
func (s *sweep) stageBucket(ctx context.Context, bucket string, emit emitFunc) (more bool) {
	listed, err := s.trash.list(ctx, bucket)
	if !s.stagePieces(ctx, listed.records, emit) {
		return false
	}
	if err == nil && bucket != ledger.BucketAtOnce {
		err = s.dropBucket(ctx, bucket)
	}
	return emit(nil, err)
}

// dropBucket removes a bucket, if it is empty, under the lock: no batch is about to fill it.
func (s *sweep) dropBucket(ctx context.Context, bucket string) error {
	lock, err := s.system.Lock(ctx)
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

// stageSome stages slots under the lock, and reads their records there: they may have changed since they were listed.
func (s *sweep) stageSome(ctx context.Context, slots []string) (staged []string, err error) {
	lock, err := s.system.Lock(ctx)
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
func (s *sweep) stageOne(ctx context.Context, lock *fsroot.HeldLock, slot string, found foundRecord) (name string, err error) {
	switch {
	case found.err != nil || !found.there:
		return "", found.err
	case found.record == nil:
		s.swept.Unknown++
		return "", nil
	case !s.selected(found.record):
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

// waitUntil notes when the next sweep is due. NextIn is rounded up, or sweep after sweep would come too early.
func (s *sweep) waitUntil(at time.Time) {
	if s.swept.Next.IsZero() || at.Before(s.swept.Next) {
		s.swept.Next = at
		s.swept.NextIn = int64(math.Ceil(at.Sub(s.now).Seconds()))
	}
}

// ClonesName is the directory, in wellknown.StateDirectory, of copies that are not complete; CloneLock, in each, is
// held by the run that copies.
const (
	ClonesName = "clones"
	CloneLock  = "lock"
)

// DiscardCopy moves the place of a copy to the staging directory of sweeps, unless a run is at work there. It
// gives the new name, or "" if there was none, or none that is old enough. A nil isOld is for the run that has the
// copy no more: whatever is left in its place goes.
func (t *Trash) DiscardCopy(ctx context.Context, volume string, isOld func(used time.Time) bool) (name string, err error) {
	clones, err := t.System.State.Enter(ctx, ClonesName)
	if err != nil {
		return "", fsroot.IgnoreMissing(err)
	}
	defer clones.Close()
	place, err := clones.Enter(ctx, volume)
	if err != nil {
		return "", fsroot.IgnoreMissing(err)
	}
	defer place.Close()
	if isOld != nil {
		lock, err := lockUnused(place, isOld)
		if err != nil || lock == nil {
			return "", err
		}
		defer lock.Close()
	}
	staging, err := t.Ensure(ctx, stagingName)
	if err != nil {
		return "", err
	}
	defer staging.Close()
	name = fsroot.Unique("clone")
	return name, clones.MoveTo(ctx, "discard "+place.Path, volume, staging, name)
}

// lockUnused locks the place of a copy; nil if it was used too recently, by the time of change of its lock.
func lockUnused(place *fsroot.Dir, isOld func(used time.Time) bool) (*os.File, error) {
	lock, err := place.OpenFile(CloneLock, os.O_RDWR|os.O_CREATE, fsroot.PrivateFile)
	if err != nil {
		return nil, err
	}
	info, err := lock.Stat()
	if err == nil && isOld(info.ModTime()) {
		taken := false
		if taken, err = fsroot.TryLock(lock); taken {
			return lock, nil
		}
		if err == nil {
			err = fsroot.Refuse(operations.Locked, "the copy for volume %s is still being made: the next try removes it", fsroot.Quote(path.Base(place.Path)))
		}
	}
	_ = lock.Close() // nothing was written to it
	return nil, err
}

// abandonedAfter is how long a copy stays that no run goes on with: its cluster may be gone.
const abandonedAfter = 30 * 24 * time.Hour

// stageAbandoned moves copies that no run goes on with to the staging directory.
func (s *sweep) stageAbandoned(ctx context.Context, emit emitFunc) (more bool) {
	clones, err := s.system.State.Enter(ctx, ClonesName)
	if err != nil {
		return emit(nil, fsroot.IgnoreMissing(err))
	}
	defer clones.Close()
	volumes, err := clones.Names(ctx)
	if err != nil {
		return emit(nil, err)
	}
	slices.Sort(volumes)
	for _, volume := range volumes {
		name, err := s.trash.DiscardCopy(ctx, volume, func(used time.Time) bool { return s.now.Sub(used) > abandonedAfter })
		if r, ok := fsroot.AsRefusal(err); ok && r.Reason == operations.Locked {
			continue
		}
		var staged []string
		if err == nil && name != "" {
			staged = []string{name}
		}
		if !emit(staged, err) {
			return false
		}
	}
	return true
}
