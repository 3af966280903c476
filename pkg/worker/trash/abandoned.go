package trash

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// ClonesName is the directory, in wellknown.StateDirectory, of copies that are not complete; cloneLock, in each, is
// held by the run that copies.
const (
	ClonesName = "clones"
	CloneLock  = "lock"
)

// DiscardCopy moves the place of a copy to the staging directory of sweeps, unless a run is at work there. It
// gives the new name, or "" if there was none, or none that is old enough.
func DiscardCopy(ctx context.Context, f *fsroot.FileSystem, volume string, staging *fsroot.Dir, isOld func(used time.Time) bool) (name string, err error) {
	clones, err := f.State.Enter(ctx, ClonesName)
	if err != nil {
		return "", fsroot.IgnoreMissing(err)
	}
	defer clones.Close()
	place, err := clones.Enter(ctx, volume)
	if err != nil {
		return "", fsroot.IgnoreMissing(err)
	}
	defer place.Close()
	lock, err := place.OpenFile(CloneLock, os.O_RDWR|os.O_CREATE, fsroot.PrivateFile)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	info, err := lock.Stat()
	if err != nil || !isOld(info.ModTime()) {
		return "", err
	}
	taken, err := fsroot.TryLock(lock)
	if err != nil {
		return "", err
	}
	if !taken {
		return "", fsroot.Refuse(operations.Locked, "the copy for volume %s is still being made: the next try removes it", fsroot.Quote(volume))
	}
	name = fsroot.Unique("clone")
	return name, clones.MoveTo(ctx, "discard "+place.Path, volume, staging, name)
}

// abandonedAfter is how long a copy stays that no run goes on with: its cluster may be gone.
const abandonedAfter = 30 * 24 * time.Hour

// stageAbandoned moves copies that no run goes on with to the staging directory.
func (s *SweepRun) stageAbandoned(ctx context.Context, emit emitFunc) (more bool) {
	clones, err := s.System.State.Enter(ctx, ClonesName)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return emit(nil, err)
	}
	defer clones.Close()
	volumes, err := clones.Names(ctx)
	if err != nil {
		return emit(nil, err)
	}
	slices.Sort(volumes)
	for _, volume := range volumes {
		name, err := DiscardCopy(ctx, s.System, volume, s.staging, func(used time.Time) bool { return s.now.Sub(used) > abandonedAfter })
		if r, ok := fsroot.AsRefusal(err); ok && r.Reason == operations.Locked {
			continue
		}
		if err != nil || name != "" {
			var names []string
			if err == nil {
				names = []string{name}
			}
			if !emit(names, err) {
				return false
			}
		}
	}
	return true
}
