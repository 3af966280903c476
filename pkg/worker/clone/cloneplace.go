package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/worker/batch"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/trash"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// openPlace opens the place of the copy. The time of change of its lock tells how long no run has been there.
func (c *clone) openPlace(ctx context.Context) error {
	clones, err := c.System.State.Ensure(ctx, trash.ClonesName)
	if err != nil {
		return err
	}
	defer clones.Close()
	if c.place, err = clones.Ensure(ctx, c.op.Volume); err != nil {
		return err
	}
	file, err := c.place.OpenFile(trash.CloneLock, os.O_RDWR|os.O_CREATE, fsroot.PrivateFile)
	if err != nil {
		return fmt.Errorf("opening the lock of %s: %w", c.place.Path, err)
	}
	c.lock = &fsroot.HeldLock{File: file}
	return nil
}

// checkPlace makes sure that the place is this run's, and was not removed meanwhile.
func (c *clone) checkPlace() error {
	if err := c.lock.Check(); err != nil {
		return err
	}
	own, err := c.place.Inspect(".")
	if err != nil {
		return err
	}
	there, err := c.System.State.Inspect(path.Join(trash.ClonesName, c.op.Volume))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, there) {
		return fsroot.Replaced(c.place.Path)
	}
	return err
}

// isPublished reports whether an earlier run has moved the copy to its path. While it is in its place, what is at the
// path is another volume's, or a person's.
func (c *clone) isPublished(found ledger.Occupancy) (bool, error) {
	if own := found.Own; own == nil || !own.IsOf(c.op.Owner) || own.State != "" || found.Info == nil {
		return false, nil
	}
	_, err := c.System.State.Inspect(path.Join(trash.ClonesName, c.op.Volume, copyName))
	return errors.Is(err, fs.ErrNotExist), fsroot.IgnoreMissing(err)
}

// begun is when the first run began, by the server's clock.
func (c *clone) begun(ctx context.Context) (time.Time, error) {
	data, _, err := c.place.ReadSmall(begunName)
	if errors.Is(err, fs.ErrNotExist) {
		return c.begin(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	begun, err := time.Parse(time.RFC3339Nano, string(data))
	if err != nil { // a run died while it wrote: everything may have changed since
		return time.Time{}, nil //nolint:nilerr // the zero time says so
	}
	return begun, nil
}

func (c *clone) begin(ctx context.Context) (time.Time, error) {
	now, err := c.System.ServerNow(ctx)
	if err == nil {
		err = c.System.BeforeGrowing(ctx, "begin "+c.place.Path)
	}
	if err == nil {
		err = c.place.CreateWhole(begunName, []byte(now.Format(time.RFC3339Nano)))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("writing %s: %w", c.place.At(begunName), err)
	}
	return now, nil
}

// openFolder opens a directory in the place of the copy, which it makes if it is missing.
func (c *clone) openFolder(ctx context.Context, name string) (*os.File, error) {
	d, err := c.place.Ensure(ctx, name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Open(".")
}

// empty removes what is in directories of the place, as a sweep does, at the pace of the copying.
func (c *clone) empty(ctx context.Context, copying *copying, names ...string) error {
	for _, name := range names {
		if err := c.lock.Check(); err != nil {
			return err
		}
		d, err := c.place.Enter(ctx, name)
		if err != nil {
			return err
		}
		_, err = treewalk.Empty(ctx, copying.Walkers, d, nil, treewalk.Options{})
		d.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// leave removes the place. Its lock is closed first: over NFS an open file is not removed, but gets a name
// that starts with .nfs, and the directory is not empty. Whoever waited for the lock finds the place gone.
func (c *clone) leave(ctx context.Context, b *batch.Batch) (note string, err error) {
	_ = c.lock.Close() // nothing was written to it
	c.lock = nil
	return dropPlace(ctx, b, c.System, c.op.Volume)
}

// dropPlace removes the place of a published copy. What cannot be removed, such as the .nfs… name of a file that
// another run has open, goes with it to where sweeps remove everything; the volume is complete, so that is a note.
func dropPlace(ctx context.Context, b *batch.Batch, f *fsroot.FileSystem, volume string) (note string, err error) {
	err = removePlace(ctx, f, volume)
	if err != nil && !fsroot.IsStop(err) {
		_, err = b.Trash.DiscardCopy(ctx, volume, nil)
	}
	if err == nil || fsroot.IsStop(err) {
		return "", err
	}
	return fmt.Sprintf("; what the copying has left in %s stays for 30 days: %v", wellknown.StateDirectory, err), nil
}

func removePlace(ctx context.Context, f *fsroot.FileSystem, volume string) error {
	clones, err := f.State.Enter(ctx, trash.ClonesName)
	if err != nil {
		return fsroot.IgnoreMissing(err)
	}
	defer clones.Close()
	place, err := clones.Enter(ctx, volume)
	if err != nil {
		return fsroot.IgnoreMissing(err)
	}
	defer place.Close()
	for _, name := range []string{linksName, removedName, begunName, trash.CloneLock} {
		if err := place.RemoveEntry(ctx, name); err != nil {
			return err
		}
	}
	return clones.RemoveEntry(ctx, volume)
}
