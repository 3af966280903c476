package trash

import (
	"context"
	"os"
	"path"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

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

// lockUnused locks the place of a copy; nil if it was used too recently. The time of change of its lock tells since
// when no run has been there.
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
		return fsroot.IgnoreMissing(err) == nil || emit(nil, err)
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
		if err != nil && !emit(nil, err) || err == nil && name != "" && !emit([]string{name}, nil) {
			return false
		}
	}
	return true
}
