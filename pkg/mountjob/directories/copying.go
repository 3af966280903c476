package directories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/operations"
)

// copying copies the content of one directory into another, many entries at once: over NFS each is some ten
// round trips, and the kernel lets only one process at a time into a directory that it changes.
//
// Tenants may change the source meanwhile, and may have made it of any width and depth. It is walked through
// handles, so nothing outside of it is reached. Directories are read in pieces, and each is walked by the
// goroutine that has found it, unless another one is free: what is held in memory is bounded by their depth.
//
// An error ends the run, and the next one goes on: what is complete stays, and what the source no longer has is
// removed.
type copying struct {
	fs      *FileSystem
	tokens  chan struct{} // one for each goroutine but the first
	pace    pace
	links   *linkTable
	lock    *heldLock // of the place; checked before anything there is changed
	buffers sync.Pool
	cancel  context.CancelCauseFunc
	walked  sync.WaitGroup

	found, copied, bytes atomic.Int64
	devices, changed     atomic.Int64 // entries that were left out; files that changed all the time
	noXattrs             atomic.Bool
}

const (
	// DefaultCloneWorkers hide the round trips of an NFS server from each other.
	DefaultCloneWorkers = 64
	// maxCloneDepth bounds the open handles: two for each directory that a goroutine is in.
	maxCloneDepth = 1024
	// DefaultCloneRate is how many requests begin in a second. Four in ten of them write, so that the clones
	// that may run on a file system together need about the 7,000 writes of EFS in its slowest mode.
	DefaultCloneRate = 5000
	// placedAtOnce is how many entries of a directory have begun and are not created yet. Only one is created
	// at a time; more than one that is being inspected meanwhile would only keep a goroutine from other
	// directories.
	placedAtOnce = 3
	// copiedPiece is how many names of a directory are read at once.
	copiedPiece = 256
	bufferBytes = 128 << 10
)

// errReplaced is that of an entry that became another one while it was copied.
var errReplaced = errors.New("it was replaced while it was copied")

// folder is a directory and its copy. Its last user sets the attributes of the copy, and closes both.
type folder struct {
	parent   *folder // nil for the top
	path     string  // below the top, for messages and steps
	depth    int
	from, to *os.File
	is       unix.Stat_t // of the directory, when its copy began
	users    atomic.Int64
}

// at is the path of an entry.
func (d *folder) at(name string) string { return path.Join(d.path, name) }

// open opens an entry of the source for reading.
func (d *folder) open(name string, flags int) (*os.File, error) {
	file, err := openAt(d.from, name, unix.O_RDONLY|flags, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENXIO) {
		return nil, errReplaced // by a link, by a file, by a socket
	}
	return file, err
}

func newCopying(f *FileSystem, links *linkTable, o CloneOptions) *copying {
	c := &copying{
		fs: f, links: links,
		tokens: make(chan struct{}, cmp.Or(o.Workers, DefaultCloneWorkers)-1),
		pace:   newPace(cmp.Or(o.Rate, DefaultCloneRate)),
	}
	c.buffers.New = func() any {
		buffer := make([]byte, bufferBytes)
		return &buffer
	}
	return c
}

func (c *copying) progress() operations.CloneProgress {
	files := c.copied.Load() // before what was found, which is never less
	return operations.CloneProgress{Files: files, Found: c.found.Load(), Bytes: c.bytes.Load()}
}

// run copies what is in from into to, and closes both.
func (c *copying) run(job context.Context, from, to *os.File) error {
	ctx, cancel := context.WithCancelCause(job)
	defer cancel(nil)
	c.cancel = cancel
	top := &folder{from: from, to: to}
	if err := fstat(from, &top.is); err != nil {
		return fmt.Errorf("inspecting the source: %w", errors.Join(err, from.Close(), to.Close()))
	}
	top.users.Add(1)
	c.found.Add(1)
	c.directory(ctx, top, true)
	c.walked.Wait()
	if job.Err() != nil {
		return &stopError{context.Cause(job)}
	}
	return context.Cause(ctx)
}

// fail ends the run, unless what could not be copied is gone from the source.
func (c *copying) fail(d *folder, name string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESTALE):
	case errors.Is(err, errReplaced):
		c.changed.Add(1)
	case IsStop(err):
		c.cancel(err)
	default:
		c.cancel(fmt.Errorf("copying %s: %w", quote(d.at(name)), err))
	}
}

// request waits until n more requests to the server may begin.
func (c *copying) request(ctx context.Context, n int) {
	c.pace.wait(ctx, n)
	if c.fs.request != nil {
		c.fs.request(n)
	}
}

// try has a free goroutine do something, if there is one.
func (c *copying) try(do func()) bool {
	select {
	case c.tokens <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-c.tokens }()
		do()
	}()
	return true
}

// directory copies what is in a directory. An old copy may have what the directory no longer has.
func (c *copying) directory(ctx context.Context, d *folder, isOld bool) {
	defer c.leave(ctx, d)
	if isOld {
		c.fail(d, "", c.removeExtra(ctx, d))
	}
	for ctx.Err() == nil {
		names, err := d.from.Readdirnames(copiedPiece)
		c.found.Add(int64(len(names)))
		for _, name := range c.entries(ctx, d, names) {
			if ctx.Err() == nil {
				c.below(ctx, d, name)
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.fail(d, "", err)
			return
		}
	}
}

// removeExtra removes from a copy what the source does not have.
func (c *copying) removeExtra(ctx context.Context, d *folder) error {
	for ctx.Err() == nil {
		names, err := d.to.Readdirnames(copiedPiece)
		gone := inParallel(ctx, cap(c.tokens), len(names), func(i int) error {
			var is unix.Stat_t
			if err := statAt(d.from, names[i], &is); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := c.fs.before(ctx, "remove "+d.at(names[i])); err != nil {
				return err
			}
			if err := c.lock.check(); err != nil {
				return err
			}
			return removeAll(d.to, names[i])
		})
		if errors.Is(err, io.EOF) {
			return gone
		}
		if err = errors.Join(err, gone); err != nil {
			return err
		}
	}
	return nil
}

// entries copies entries of a directory, and gives the names of those that are directories. They are begun as
// fast as the directory lets them be created: so small files take few goroutines, and large ones many.
func (c *copying) entries(ctx context.Context, d *folder, names []string) (below []string) {
	var mu sync.Mutex
	var working sync.WaitGroup
	placing := make(chan struct{}, placedAtOnce)
	for _, name := range names {
		placing <- struct{}{}
		working.Add(1)
		work := func() {
			defer working.Done()
			placed := sync.OnceFunc(func() { <-placing })
			defer placed()
			if ctx.Err() == nil && c.entry(ctx, d, name, placed) {
				mu.Lock()
				defer mu.Unlock()
				below = append(below, name)
			}
		}
		if !c.try(work) {
			work()
		}
	}
	working.Wait()
	return below
}

// entry copies an entry that is no directory. It calls placed when the copy of a file is created.
func (c *copying) entry(ctx context.Context, d *folder, name string, placed func()) (isDirectory bool) {
	c.request(ctx, 2)
	var is unix.Stat_t
	err := c.lock.check()
	if err == nil {
		err = statAt(d.from, name, &is)
	}
	switch kind := is.Mode & unix.S_IFMT; {
	case err != nil:
	case kind == unix.S_IFDIR:
		return true
	case kind == unix.S_IFREG && is.Nlink > 1:
		err = c.linked(ctx, d, name, &is)
	case kind == unix.S_IFREG:
		err = c.file(ctx, d, name, &is, placed)
	case kind == unix.S_IFLNK:
		err = c.symlink(ctx, d, name, &is)
	case kind == unix.S_IFIFO, kind == unix.S_IFSOCK:
		err = c.node(ctx, d, name, &is)
	default:
		c.devices.Add(1)
	}
	c.fail(d, name, err)
	if err == nil {
		c.copied.Add(1)
	} else {
		c.found.Add(-1)
	}
	return false
}

// below copies a directory in another one, here or in a free goroutine.
func (c *copying) below(ctx context.Context, parent *folder, name string) {
	parent.users.Add(1)
	c.walked.Add(1)
	walk := func() {
		defer c.walked.Done()
		d, isOld, err := c.enter(ctx, parent, name)
		if err != nil {
			c.found.Add(-1)
			c.fail(parent, name, err)
			c.leave(ctx, parent)
			return
		}
		c.directory(ctx, d, isOld)
	}
	if !c.try(walk) {
		walk()
	}
}

// enter opens a directory and its copy, which it makes if it is missing.
func (c *copying) enter(ctx context.Context, parent *folder, name string) (d *folder, isOld bool, err error) {
	if parent.depth == maxCloneDepth {
		return nil, false, refuse(operations.TooDeep, "%s is inside %d other directories, and a clone copies no more: copy the data with a pod", quote(parent.at(name)), maxCloneDepth)
	}
	c.request(ctx, 4) // both are opened, and one is made and inspected
	d = &folder{parent: parent, path: parent.at(name), depth: parent.depth + 1}
	d.users.Add(1)
	if d.from, err = parent.open(name, unix.O_DIRECTORY); err != nil {
		return nil, false, err
	}
	if err = fstat(d.from, &d.is); err == nil {
		isOld, err = c.makeFolder(ctx, parent, name)
	}
	if err == nil {
		d.to, err = openAt(parent.to, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return nil, false, errors.Join(err, d.from.Close())
	}
	return d, isOld, nil
}

// makeFolder makes the copy of a directory. It is private until its attributes are set.
func (c *copying) makeFolder(ctx context.Context, parent *folder, name string) (isOld bool, err error) {
	if err := c.fs.beforeGrowing(ctx, "make "+parent.at(name)); err != nil {
		return false, err
	}
	mkdir := func() error { return unix.Mkdirat(int(parent.to.Fd()), name, privateDirectory) }
	if err := ignoringEINTR(mkdir); !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	var copied unix.Stat_t
	if err := statAt(parent.to, name, &copied); err != nil || copied.Mode&unix.S_IFMT == unix.S_IFDIR {
		return true, err
	}
	if err := removeAll(parent.to, name); err != nil {
		return false, err
	}
	return false, ignoringEINTR(mkdir)
}

// leave completes a directory that nobody uses any more, and then perhaps those above it.
func (c *copying) leave(ctx context.Context, d *folder) {
	for ; d != nil && d.users.Add(-1) == 0; d = d.parent {
		err := ctx.Err()
		if err == nil {
			err = c.fs.before(ctx, "complete "+d.at("."))
		}
		if err == nil {
			err = c.lock.check()
		}
		if err == nil {
			err = c.completeFolder(ctx, d)
		}
		if ctx.Err() == nil {
			c.fail(d, ".", err)
		}
		if err == nil {
			c.copied.Add(1)
		}
		_ = d.from.Close() // nothing was written by either handle
		_ = d.to.Close()
	}
}

func (c *copying) completeFolder(ctx context.Context, d *folder) error {
	c.request(ctx, 5) // the lock and it are inspected, and it is given its owner, its mode and its times
	var now unix.Stat_t
	if err := fstat(d.to, &now); err != nil {
		return err
	}
	return c.setAttributes(d.from, d.to, now, &d.is)
}
