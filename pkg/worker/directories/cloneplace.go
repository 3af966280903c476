package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// openPlace opens the place of the copy. The time of change of its lock tells how long no run has been there.
func (c *clone) openPlace(ctx context.Context) error {
	clones, err := c.fs.state.ensure(ctx, clonesName)
	if err != nil {
		return err
	}
	defer clones.close()
	if c.place, err = clones.ensure(ctx, c.op.Volume); err != nil {
		return err
	}
	file, err := c.place.OpenFile(cloneLock, os.O_RDWR|os.O_CREATE, privateFile)
	if err != nil {
		return fmt.Errorf("opening the lock of %s: %w", c.place.path, err)
	}
	c.lock = &heldLock{File: file}
	return nil
}

// checkPlace makes sure that the place is this run's, and was not removed meanwhile.
func (c *clone) checkPlace(ctx context.Context) error {
	if err := c.lock.check(); err != nil {
		return err
	}
	own, err := c.place.stat(".")
	if err != nil {
		return err
	}
	clones, err := c.fs.state.enter(ctx, clonesName)
	if err != nil {
		return err
	}
	defer clones.close()
	there, err := clones.stat(c.op.Volume)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, there) {
		return replaced(c.place.path)
	}
	return err
}

// begun is when the first run began, by the server's clock.
func (c *clone) begun(ctx context.Context) (time.Time, error) {
	data, _, err := c.place.read(begunName)
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
	now, err := c.fs.serverNow(ctx)
	if err == nil {
		err = c.fs.beforeGrowing(ctx, "begin "+c.place.path)
	}
	if err == nil {
		err = c.place.create(begunName, []byte(now.Format(time.RFC3339Nano)))
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("writing %s: %w", c.place.at(begunName), err)
	}
	return now, nil
}

// openFolder opens a directory in the place of the copy, which it makes if it is missing.
func (c *clone) openFolder(ctx context.Context, name string) (*os.File, error) {
	if err := c.place.mkdir(ctx, name); err != nil {
		return nil, err
	}
	d, err := c.place.enter(ctx, name)
	if err != nil {
		return nil, err
	}
	defer d.close()
	return d.Open(".")
}

func (c *clone) openLinks(ctx context.Context) (*linkTable, error) {
	d, err := c.openFolder(ctx, linksName)
	if err != nil {
		return nil, err
	}
	return &linkTable{dir: d}, nil
}

// empty removes what is in directories of the place, as a sweep does, at the pace of the copying: the names that
// the copy's files have beside their own, and what was part of the copy before.
func (c *clone) empty(ctx context.Context, copying *copying, names ...string) error {
	for _, name := range names {
		if err := c.lock.check(); err != nil {
			return err
		}
		d, err := c.place.enter(ctx, name)
		if err != nil {
			return err
		}
		r := newRemoval(c.fs, d, noMore, SweepOptions{Workers: copying.workers})
		r.request = func() { copying.request(ctx, 1) }
		_, err = r.run(ctx)
		d.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// leave removes the place. Its lock is closed first: over NFS an open file is not removed, but gets a name
// that starts with .nfs, and the directory is not empty. Whoever waited for the lock finds the place gone.
func (c *clone) leave(ctx context.Context) (note string, err error) {
	_ = c.lock.Close() // nothing was written to it
	c.lock = nil
	return c.fs.dropPlace(ctx, c.op.Volume)
}

// dropPlace removes the place of a copy that was published. What cannot be removed, such as the .nfs… name of a file
// that another run has open, goes with its place to where sweeps remove everything. The volume is complete, so what
// is left there is a note.
func (f *FileSystem) dropPlace(ctx context.Context, volume string) (note string, err error) {
	err = f.removePlace(ctx, volume)
	if err != nil && !IsStop(err) {
		err = f.stagePlace(ctx, volume)
	}
	if err == nil || IsStop(err) {
		return "", err
	}
	return fmt.Sprintf("; what the copying has left in %s stays for 30 days: %v", wellknown.StateDirectory, err), nil
}

func (f *FileSystem) removePlace(ctx context.Context, volume string) error {
	clones, err := f.state.enter(ctx, clonesName)
	if err != nil {
		return ignoreMissing(err)
	}
	defer clones.close()
	place, err := clones.enter(ctx, volume)
	if err != nil {
		return ignoreMissing(err)
	}
	defer place.close()
	for _, name := range []string{linksName, removedName, begunName, cloneLock} {
		if err := place.remove(ctx, name); err != nil {
			return err
		}
	}
	return clones.remove(ctx, volume)
}

func (f *FileSystem) stagePlace(ctx context.Context, volume string) error {
	t, err := f.openTrash(ctx)
	if err != nil {
		return err
	}
	defer t.close()
	staging, err := t.ensure(ctx, stagingName)
	if err != nil {
		return err
	}
	defer staging.close()
	clones, err := f.state.enter(ctx, clonesName)
	if err != nil {
		return err
	}
	defer clones.close()
	return clones.move(ctx, "discard "+clones.at(volume), volume, staging, unique("clone"))
}
