package clone

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// folder is a directory and its copy. Its last user sets the attributes of the copy, and closes both.
type folder struct {
	parent   *folder // nil for the top
	path     string  // below the top, for messages and steps
	depth    int
	from, to *os.File
	is       unix.Stat_t // of the directory, when its copy began
	tries    int         // how often it was copied before
	cut      atomic.Bool // it could not be listed to its end
	users    atomic.Int64
}

func (d *folder) at(name string) string { return path.Join(d.path, name) }

func (d *folder) open(name string, flags int) (*os.File, error) {
	file, err := fsroot.OpenAt(d.from, name, unix.O_RDONLY|flags, 0)
	return file, ofSource(err)
}

// inspect reports what the source has under a name. Over NFS, a directory that is gone has stale entries.
func (d *folder) inspect(name string, into *unix.Stat_t) (there bool, err error) {
	err = fsroot.StatAt(d.from, name, into)
	if errors.Is(err, syscall.ESTALE) {
		d.cut.Store(true)
	}
	if fsroot.IsGone(err) {
		return false, nil
	}
	return err == nil, err
}

// below copies a directory in another one, here or in a free goroutine.
func (c *copying) below(ctx context.Context, parent *folder, name string, tries int) {
	parent.users.Add(1)
	c.Here(func() {
		d, isOld, err := c.enter(ctx, parent, name)
		if err == nil {
			d.tries = tries
			c.directory(ctx, d, isOld)
			return
		}
		c.found.Add(-1)
		if errors.Is(err, errReplaced) {
			c.again(ctx, parent, name, tries+1)
		} else {
			c.fail(parent, name, err)
		}
		c.leave(ctx, parent)
	})
}

// again copies anew what was a directory and was replaced, from nothing: files of both may look the same, and differ.
func (c *copying) again(ctx context.Context, parent *folder, name string, tries int) {
	switch err := c.remove(ctx, parent, name); {
	case err != nil:
		c.fail(parent, name, err)
	case tries == changeTries:
		c.leaveOut(parent.at(name))
	default:
		c.found.Add(1)
		if c.entry(ctx, parent, name, func() {}) {
			c.below(ctx, parent, name, tries)
		}
	}
}

// enter opens a directory and its copy, which it makes if it is missing.
func (c *copying) enter(ctx context.Context, parent *folder, name string) (d *folder, isOld bool, err error) {
	if parent.depth == maxDepth {
		return nil, false, fsroot.Refuse(operations.TooDeep, "%s is inside %d other directories, and a clone copies no more: copy the data with a pod", fsroot.Quote(parent.at(name)), maxDepth)
	}
	c.Request(ctx, 4) // both are opened, and one is made and inspected
	d = &folder{parent: parent, path: parent.at(name), depth: parent.depth + 1}
	d.users.Add(1)
	if d.from, err = parent.open(name, unix.O_DIRECTORY); err != nil {
		return nil, false, err
	}
	if err = ofSource(fsroot.Fstat(d.from, &d.is)); err == nil {
		isOld, err = c.makeFolder(ctx, parent, name)
	}
	if err == nil {
		d.to, err = fsroot.OpenAt(parent.to, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, false, errors.Join(err, d.from.Close())
	}
	return d, isOld, nil
}

// makeFolder makes the copy of a directory. It is private until its attributes are set.
func (c *copying) makeFolder(ctx context.Context, parent *folder, name string) (isOld bool, err error) {
	if err := c.System.BeforeGrowing(ctx, "make "+parent.at(name)); err != nil {
		return false, err
	}
	made, err := c.create(ctx, parent, name, isFolder, func() error {
		return unix.Mkdirat(int(parent.to.Fd()), name, fsroot.PrivateDirectory)
	})
	return !made, err
}

// leave completes a directory that nobody uses any more, and then perhaps those above it.
func (c *copying) leave(ctx context.Context, d *folder) {
	for ; d != nil && d.users.Add(-1) == 0; d = d.parent {
		err := ctx.Err()
		if err == nil {
			err = c.System.Before(ctx, "complete "+d.at("."))
		}
		if err == nil {
			err = c.lock.Check()
		}
		if err == nil {
			err = c.completeFolder(ctx, d)
		}
		_ = d.from.Close() // nothing was written by either handle
		_ = d.to.Close()
		switch {
		case err == nil:
			c.copied.Add(1)
		case errors.Is(err, errReplaced):
			c.found.Add(-1)
			c.again(ctx, d.parent, path.Base(d.path), d.tries+1)
		case ctx.Err() == nil:
			c.fail(d, ".", err)
		}
	}
}

// completeFolder sets the attributes of a directory, if it was the same all the time. One that is gone from its
// place stays in the copy as it was found, since it may have been moved to where the run has been already.
func (c *copying) completeFolder(ctx context.Context, d *folder) error {
	c.Request(ctx, 5) // it is inspected twice, and given its owner, its mode and its times
	there := false
	if d.parent != nil {
		var is unix.Stat_t
		var err error
		if there, err = d.parent.inspect(path.Base(d.path), &is); err != nil {
			return err
		}
		if there && (d.cut.Load() || !isSameFile(&is, &d.is)) {
			return errReplaced
		}
	}
	var now unix.Stat_t
	if err := fsroot.Fstat(d.to, &now); err != nil {
		return err
	}
	err := c.setAttributes(d.from, d.to, now, &d.is)
	if errors.Is(err, errReplaced) && !there {
		d.cut.Store(true)
		return nil
	}
	return err
}

func isFolder(is *unix.Stat_t) bool { return is.Mode&unix.S_IFMT == unix.S_IFDIR }

func isSameFile(a, b *unix.Stat_t) bool { return a.Ino == b.Ino && a.Dev == b.Dev }

// removeExtra removes from a copy what the source does not have, until nothing is left to remove: a server may leave
// out names of a directory that changes while it is listed. After the source was listed, it removes what an earlier run
// may have cut, and is gone since: this run has not found its name.
func (c *copying) removeExtra(ctx context.Context, d *folder, isListed bool) error {
	for {
		if _, err := d.to.Seek(0, io.SeekStart); err != nil {
			return err
		}
		removed, err := c.removeListed(ctx, d, isListed)
		if err != nil || !removed || ctx.Err() != nil {
			return err
		}
	}
}

func (c *copying) removeListed(ctx context.Context, d *folder, isListed bool) (some bool, err error) {
	var removed atomic.Bool
	for names, err := range fsroot.Pieces(ctx, func() ([]string, error) { return d.to.Readdirnames(copiedPiece) }) {
		gone := fsroot.InParallel(ctx, c.workers, len(names), func(i int) error {
			var is unix.Stat_t
			if there, err := d.inspect(names[i], &is); there && !isRemovedWhileOpen(names[i]) || err != nil {
				return err
			}
			if isListed {
				if left, err := c.isLeft(d, names[i]); !left || err != nil {
					return fsroot.IgnoreMissing(err)
				}
			}
			removed.Store(true)
			return c.remove(ctx, d, names[i])
		})
		if err = errors.Join(err, gone); err != nil {
			return false, err
		}
	}
	return removed.Load(), nil
}

// remove removes an entry of a copy, if there is one. A directory, which takes long, is only moved aside, see empty.
func (c *copying) remove(ctx context.Context, d *folder, name string) error {
	if err := c.System.Before(ctx, "remove "+d.at(name)); err != nil {
		return err
	}
	c.Request(ctx, 2)
	if err := c.lock.Check(); err != nil {
		return err
	}
	err := fsroot.UnlinkAt(d.to, name, 0)
	if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EPERM) {
		err = fsroot.IgnoringEINTR(func() error {
			return unix.Renameat(int(d.to.Fd()), name, int(c.removed.Fd()), fsroot.Unique("removed"))
		})
	}
	return fsroot.IgnoreMissing(err)
}
