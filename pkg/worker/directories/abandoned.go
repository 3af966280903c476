package directories

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// clonesName is the directory, in wellknown.StateDirectory, of copies that are not complete; cloneLock, in each, is
// held by the run that copies.
const (
	clonesName = "clones"
	cloneLock  = "lock"
)

// discardCopy moves the place of a copy to the staging directory of sweeps, unless a run is at work there. It
// gives the new name, or "" if there was none, or none that is old enough.
func (f *FileSystem) discardCopy(ctx context.Context, volume string, staging *dir, isOld func(used time.Time) bool) (name string, err error) {
	clones, err := f.state.enter(ctx, clonesName)
	if err != nil {
		return "", ignoreMissing(err)
	}
	defer clones.close()
	place, err := clones.enter(ctx, volume)
	if err != nil {
		return "", ignoreMissing(err)
	}
	defer place.close()
	lock, err := place.OpenFile(cloneLock, os.O_RDWR|os.O_CREATE, privateFile)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	info, err := lock.Stat()
	if err != nil || !isOld(info.ModTime()) {
		return "", err
	}
	taken, err := tryLock(lock)
	if err != nil {
		return "", err
	}
	if !taken {
		return "", refuse(operations.Locked, "the copy for volume %s is still being made: the next try removes it", quote(volume))
	}
	name = unique("clone")
	return name, clones.move(ctx, "discard "+place.path, volume, staging, name)
}

// abandonedAfter is how long a copy stays that no run goes on with: its cluster may be gone.
const abandonedAfter = 30 * 24 * time.Hour

// stageAbandoned moves copies that no run goes on with to the staging directory.
func (s *sweep) stageAbandoned(ctx context.Context, emit emitFunc) (more bool) {
	clones, err := s.fs.state.enter(ctx, clonesName)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return emit(nil, err)
	}
	defer clones.close()
	volumes, err := clones.names(ctx)
	if err != nil {
		return emit(nil, err)
	}
	slices.Sort(volumes)
	for _, volume := range volumes {
		name, err := s.fs.discardCopy(ctx, volume, s.staging, func(used time.Time) bool { return s.now.Sub(used) > abandonedAfter })
		if r, ok := asRefusal(err); ok && r.Reason == operations.Locked {
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
