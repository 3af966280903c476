package directories

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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

// removeLinks removes the names that the copy's files have beside their own.
func (c *clone) removeLinks(ctx context.Context, links *linkTable) error {
	shards, err := links.dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("listing the links of %s: %w", c.place.path, err)
	}
	err = inParallel(ctx, len(shards), len(shards), func(i int) error {
		if err := c.fs.before(ctx, "remove links "+shards[i]); err != nil {
			return err
		}
		return removeAll(links.dir, shards[i])
	})
	if err != nil {
		return fmt.Errorf("removing the links of %s: %w", c.place.path, err)
	}
	return nil
}

// leave removes the place. Its lock is closed first: over NFS an open file is not removed, but gets a name
// that starts with .nfs, and the directory is not empty. Whoever waited for the lock finds the place gone.
func (c *clone) leave(ctx context.Context) error {
	lock := c.lock
	c.lock = nil
	if err := lock.Close(); err != nil {
		return fmt.Errorf("closing the lock of %s: %w", c.place.path, err)
	}
	return c.fs.dropPlace(ctx, c.op.Volume)
}

// dropPlace removes the place of a copy that was published.
func (f *FileSystem) dropPlace(ctx context.Context, volume string) error {
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
	if err := place.remove(ctx, linksName); err != nil {
		return err
	}
	if err := place.remove(ctx, cloneLock); err != nil {
		return err
	}
	return clones.remove(ctx, volume)
}
