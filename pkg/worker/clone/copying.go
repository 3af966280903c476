package clone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// copying copies what is in one directory into another, many entries at once: over NFS each is some ten round trips.
//
// Tenants may change the source meanwhile, and may have made it of any width and depth: it is walked through handles,
// so that nothing outside is reached, in pieces, and by Walkers.
//
// What is replaced while it is copied is copied anew, and left out if that goes on: nothing in the copy is cut. Any
// other error ends the run. The next one keeps what is complete, and removes what the source no longer has.
type copying struct {
	*treewalk.Walkers           // beside the goroutine that runs it
	begun             time.Time // when the first run of this clone began, by the server's clock
	started           time.Time // when this one did
	workers           int       // how many goroutines there may be
	links             *linkTable
	removed           *os.File         // the directory of what is no part of the copy any more
	lock              *fsroot.HeldLock // of the place; checked before anything there is changed
	buffers           sync.Pool
	cancel            context.CancelCauseFunc

	found, copied, bytes atomic.Int64
	unflushed            atomic.Int64 // bytes that are perhaps in the memory of this node only
	devices, changed     atomic.Int64 // entries that were left out; files that changed all the time
	noXattrs             atomic.Bool

	mu       sync.Mutex
	leftOut  int      // entries that were replaced all the time; guarded by mu
	examples []string // the first of them; guarded by mu
}

const (
	defaultWorkers = fsroot.DefaultSweepWorkers
	// maxDepth bounds the open handles: two for each directory that a goroutine is in.
	maxDepth = 1024
	// defaultRate is how many requests begin in a second. Four in ten of them write, so that the clones
	// that may run on a file system together need about the 7,000 writes of EFS in its slowest mode.
	defaultRate = 5000
	// placedAtOnce entries of a directory are begun and not created yet: one is created at a time, and more that are
	// inspected meanwhile would only keep goroutines from other directories.
	placedAtOnce = 3
	// copiedPiece is how many names of a directory are read at once.
	copiedPiece = 256
	bufferBytes = 128 << 10
)

// errReplaced is that of an entry of the source that was removed or replaced while it was copied.
var errReplaced = errors.New("it was replaced while it was copied")

// ofSource makes errReplaced of an error that says so of the source. The copy, which only this run changes, has none.
func ofSource(err error) error {
	for _, replaced := range []error{
		fs.ErrNotExist, syscall.ESTALE, // gone, by this client or another one
		syscall.ELOOP, syscall.ENOTDIR, syscall.ENXIO, // a link, a file, a socket is there
	} {
		if errors.Is(err, replaced) {
			return errReplaced
		}
	}
	return err
}

func newCopying(f *fsroot.FileSystem, begun time.Time, links *linkTable, removed *os.File, o Options) *copying {
	c := &copying{
		Walkers: treewalk.NewWalkers(f, cmp.Or(o.Workers, defaultWorkers)-1, cmp.Or(o.Rate, defaultRate)),
		workers: cmp.Or(o.Workers, defaultWorkers), begun: begun, links: links, removed: removed,
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

// run copies what is in from into to, and closes both. The copy is cut if the source itself was replaced.
func (c *copying) run(job context.Context, from, to *os.File) (cut bool, err error) {
	ctx, cancel := context.WithCancelCause(job)
	defer cancel(nil)
	c.cancel = cancel
	top := &folder{from: from, to: to}
	if err := fsroot.Fstat(from, &top.is); err != nil {
		return false, fmt.Errorf("inspecting the source: %w", errors.Join(err, from.Close(), to.Close()))
	}
	top.users.Add(1)
	c.found.Add(1)
	c.directory(ctx, top, true)
	c.Wait()
	return top.cut.Load(), cmp.Or(fsroot.Stopped(job), context.Cause(ctx))
}

func (c *copying) fail(d *folder, name string, err error) {
	switch {
	case err == nil:
	case fsroot.IsStop(err):
		c.cancel(err)
	default:
		c.cancel(fmt.Errorf("copying %s: %w", fsroot.Quote(d.at(name)), err))
	}
}

// namedAtMost is how many entries that were left out are named in the event.
const namedAtMost = 5

// leaveOut notes an entry that was replaced whenever it was copied.
func (c *copying) leaveOut(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leftOut++; len(c.examples) < namedAtMost {
		c.examples = append(c.examples, fsroot.Quote(name))
	}
}

// directory copies what is in a directory. An old copy may have what the directory no longer has.
func (c *copying) directory(ctx context.Context, d *folder, isOld bool) {
	defer c.leave(ctx, d)
	if isOld {
		c.fail(d, "", c.removeExtra(ctx, d, false))
	}
	for names, err := range fsroot.Pieces(ctx, func() ([]string, error) { return c.list(d) }) {
		c.found.Add(int64(len(names)))
		for _, name := range c.entries(ctx, d, names) {
			if ctx.Err() == nil {
				c.below(ctx, d, name, 0)
			}
		}
		if errors.Is(err, errReplaced) {
			d.cut.Store(true)
			return
		}
		c.fail(d, "", err)
	}
	if isOld && ctx.Err() == nil {
		c.fail(d, "", c.removeExtra(ctx, d, true))
	}
}

func (c *copying) list(d *folder) (names []string, err error) {
	if err := c.System.Hook(c.System.Source, "list "+d.at(".")); err != nil {
		return nil, ofSource(err)
	}
	names, err = d.from.Readdirnames(copiedPiece)
	return slices.DeleteFunc(names, isRemovedWhileOpen), ofSource(err)
}

// isRemovedWhileOpen recognizes the names that a Linux NFS client gives to files that are removed while they are open.
func isRemovedWhileOpen(name string) bool {
	digits, ok := strings.CutPrefix(name, ".nfs")
	return ok && len(digits) == 24 && strings.Trim(digits, "0123456789abcdef") == ""
}

// entries copies entries, and gives the names of directories among them. They are begun as fast as the directory lets
// them be created: so small files take few goroutines, and large ones many.
func (c *copying) entries(ctx context.Context, d *folder, names []string) (below []string) {
	var mu sync.Mutex
	var working sync.WaitGroup
	placing := make(chan struct{}, placedAtOnce)
	for _, name := range names {
		placing <- struct{}{}
		working.Add(1)
		c.Here(func() {
			defer working.Done()
			placed := sync.OnceFunc(func() { <-placing })
			defer placed()
			if ctx.Err() == nil && c.entry(ctx, d, name, placed) {
				mu.Lock()
				defer mu.Unlock()
				below = append(below, name)
			}
		})
	}
	working.Wait()
	return below
}

// entry copies an entry that is no directory, and once more when it is replaced meanwhile. What is gone is not in
// the copy, nor is what was replaced all the time. It calls placed when the copy of a file is created.
func (c *copying) entry(ctx context.Context, d *folder, name string, placed func()) (isDirectory bool) {
	there, err := true, errReplaced
	for try := 0; try < changeTries && errors.Is(err, errReplaced); try++ {
		c.Request(ctx, 2)
		var is unix.Stat_t
		if err = c.lock.Check(); err != nil {
			break
		}
		if there, err = d.inspect(name, &is); !there {
			break
		}
		if isFolder(&is) {
			return true
		}
		err = c.copy(ctx, d, name, &is, placed)
	}
	if there && err == nil {
		c.copied.Add(1)
		return false
	}
	c.found.Add(-1)
	if errors.Is(err, errReplaced) {
		c.leaveOut(d.at(name))
		err = nil
	}
	if err == nil { // an earlier run may have copied it, whole or in part
		err = c.remove(ctx, d, name)
	}
	c.fail(d, name, err)
	return false
}

// copy copies an entry that is as the caller has found it, if it still is.
func (c *copying) copy(ctx context.Context, d *folder, name string, is *unix.Stat_t, placed func()) error {
	switch kind := is.Mode & unix.S_IFMT; {
	case kind == unix.S_IFREG && is.Nlink > 1:
		return c.linked(ctx, d, name, is)
	case kind == unix.S_IFREG:
		return c.file(ctx, d, name, is, placed)
	case kind == unix.S_IFLNK:
		return c.symlink(ctx, d, name, is)
	case kind == unix.S_IFIFO, kind == unix.S_IFSOCK:
		return c.node(ctx, d, name, is)
	default:
		c.devices.Add(1)
		return c.remove(ctx, d, name)
	}
}
