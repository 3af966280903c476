package directories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// SweepOptions say how the trash is emptied.
type SweepOptions struct {
	// Workers is how many directories are emptied, or records read, at once; 0 is
	// DefaultSweepWorkers.
	Workers int
	// Progress, if not nil, is called after every Every removals; one call at a time.
	Progress func(operations.Swept)
	Every    int64 // 0 is 1000
}

// removal empties a directory, such as the staging directory of sweeps, many branches at once: over NFS each
// removal is a round trip, and the kernel lets only one at a time into the same directory.
//
// A tenant may still have the tree open, and made it: it can be of any depth and width, and change
// meanwhile. Everything is removed through handles that os.Root keeps inside the tree. Memory and
// handles are bounded: a directory is read in pieces, the youngest piece first, and one that lies deep
// is moved to the top. A worker that has nothing to remove has more staged, so that what is staged is
// removed even if the time is over before all is.
type removal struct {
	fs      *FileSystem
	top     *branch
	topDir  *dir
	options SweepOptions
	request func() // called before each entry is removed

	over atomic.Bool // nothing more is begun; set under mu, because workers wait for it

	mu       sync.Mutex
	wake     *sync.Cond
	stage    func() (names []string, err error, more bool) // guarded by mu; nil when there is no more
	staging  bool                                          // guarded by mu; a worker is calling stage
	waiting  []*branch                                     // guarded by mu; the last one is next
	idle     int                                           // guarded by mu; workers without a branch
	swept    operations.Swept                              // guarded by mu
	reported int64                                         // guarded by mu; removals at the last progress
	errs     []error                                       // guarded by mu; the first few
	entered  map[*branch]bool                              // guarded by mu; those with open handles
}

// branch is a directory that is being emptied and removed. It is removed when its last user leaves:
// users are its reading, from when it waits for a worker to its end, workers that clear it, and children that
// are there.
type branch struct {
	parent *branch // nil for the top, which stays
	name   string
	depth  int
	root   *os.Root // nil until entered
	list   *os.File // nil unless it is being read
	passes int      // how often it was read to its end
	busy   int      // workers that clear it; guarded by removal.mu
	held   bool     // it is not among the waiting until one of those is done; guarded by removal.mu
	users  atomic.Int64
	failed atomic.Bool // it stays
}

const (
	pieceSize    = 256 // entries of a directory that are read at once
	maxDepth     = 16  // of open directories below each other
	maxPasses    = 4   // of a directory that is filled while it is emptied
	maxBusy      = 4   // workers in one directory: the kernel lets only one change it, and others have work elsewhere
	maxErrors    = 8
	defaultEvery = 1000
)

func newRemoval(f *FileSystem, d *dir, stage func() ([]string, error, bool), options SweepOptions) *removal {
	options.Every = cmp.Or(options.Every, defaultEvery)
	if options.Progress == nil {
		options.Progress = func(operations.Swept) {}
	}
	r := &removal{fs: f, topDir: d, top: &branch{name: d.path, root: d.Root}, options: options, stage: stage, entered: map[*branch]bool{}}
	r.request = func() { f.hookRequest(1) }
	r.wake = sync.NewCond(&r.mu)
	return r
}

// noMore stages nothing: what is in the directory is all.
func noMore() (names []string, err error, more bool) { return nil, nil, false } //nolint:revive // as the type of stage

func (r *removal) run(ctx context.Context) (operations.Swept, error) {
	stop := context.AfterFunc(ctx, r.finish)
	defer stop()
	r.top.users.Add(1) // until no more is staged
	r.read(r.top)
	var workers sync.WaitGroup
	for range r.options.Workers {
		workers.Go(func() { r.work(ctx) })
	}
	workers.Wait()
	r.closeHandles()
	r.options.Progress(r.swept)
	if ctx.Err() != nil {
		r.errs = append(r.errs, &stopError{context.Cause(ctx)})
	}
	return r.swept, errors.Join(r.errs...)
}

// work takes the youngest branch again and again, until none is left and no other worker makes any.
func (r *removal) work(ctx context.Context) {
	for {
		b, stage := r.next()
		switch {
		case stage:
			r.stageMore()
		case b == nil:
			return
		default:
			if err := r.fs.before(ctx, "sweep "+b.name); err != nil {
				r.note(b, err)
				r.finish()
				return
			}
			r.advance(b)
		}
	}
}

// next gives the next branch; nil is the end, unless the worker shall stage more.
func (r *removal) next() (b *branch, stage bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle++
	for len(r.waiting) == 0 && !r.over.Load() {
		switch {
		case r.stage != nil && !r.staging:
			r.staging = true
			r.idle--
			return nil, true
		case r.idle == r.options.Workers:
			r.over.Store(true)
			r.wake.Broadcast()
		default:
			r.wake.Wait()
		}
	}
	if r.over.Load() {
		return nil, false
	}
	r.idle--
	b = r.waiting[len(r.waiting)-1]
	r.waiting = r.waiting[:len(r.waiting)-1]
	return b, false
}

// stageMore has one more piece staged, and makes branches of it.
func (r *removal) stageMore() {
	names, err, more := r.stage()
	r.note(r.top, err)
	r.pushChildren(r.top, names)
	if !more {
		r.leave(r.top)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept.Volumes += len(names)
	if !more {
		r.stage = nil
	}
	r.staging = false
	r.wake.Broadcast()
}

// read has branches read from their beginning.
func (r *removal) read(branches ...*branch) {
	for _, b := range branches {
		b.users.Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, branches...)
	r.wake.Broadcast()
}

func (r *removal) pushChildren(b *branch, names []string) {
	children := make([]*branch, len(names))
	for i, name := range names {
		b.users.Add(1)
		children[i] = &branch{parent: b, name: name, depth: b.depth + 1}
	}
	r.read(children...)
}

func (r *removal) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over.Store(true)
	r.wake.Broadcast()
}

// leave ends one use of a branch. If it was the last one, the branch is removed, which ends a use of
// its parent.
func (r *removal) leave(b *branch) {
	for ; b != nil; b = b.parent {
		if b.users.Add(-1) > 0 || r.over.Load() || !r.removeBranch(b) {
			return
		}
	}
}

// removeBranch removes an emptied branch. One that is not empty after all is read again: a tenant
// still writes there, or the server's listing jumped because of what was removed.
func (r *removal) removeBranch(b *branch) (gone bool) {
	b.passes++
	if b.parent == nil {
		r.rereadTop()
		return false
	}
	if !b.failed.Load() {
		err := b.parent.root.Remove(b.name)
		if errors.Is(err, fs.ErrExist) && b.passes < maxPasses {
			r.read(b)
			return false
		}
		r.count(err)
		r.fail(b, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.root != nil {
		_ = b.root.Close()
	}
	delete(r.entered, b)
	return true
}

// rereadTop reads the top until nothing is moved to it any more. What failed stays there.
func (r *removal) rereadTop() {
	empty, err := r.topDir.isEmpty()
	r.fail(r.top, err)
	if err == nil && !empty && !r.top.failed.Load() {
		r.read(r.top)
	}
}

// advance reads one piece of a branch, lets another worker read the next one, and removes what
// is in its own.
func (r *removal) advance(b *branch) {
	if b.list == nil {
		if err := r.enter(b); err != nil {
			r.fail(b, err)
			r.leave(b)
			return
		}
	}
	piece, err := b.list.Readdirnames(pieceSize)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			r.fail(b, err)
		}
		r.fail(b, b.list.Close())
		b.list = nil
		r.leave(b)
		return
	}
	b.users.Add(1)
	r.share(b)
	r.clear(b, piece)
	r.unshare(b)
	r.leave(b)
}

// share lets another worker read the next piece of a branch, unless enough are at work there.
func (r *removal) share(b *branch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.busy++
	if b.held = b.busy == maxBusy; !b.held {
		r.waiting = append(r.waiting, b)
		r.wake.Broadcast()
	}
}

func (r *removal) unshare(b *branch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.busy--
	if b.held {
		b.held = false
		r.waiting = append(r.waiting, b)
		r.wake.Broadcast()
	}
}

// enter opens a branch, at its first piece.
func (r *removal) enter(b *branch) error {
	if b.root == nil {
		root, err := b.parent.root.OpenRoot(b.name)
		if err != nil {
			return err
		}
		b.root = root
	}
	list, err := b.root.Open(".")
	b.list = list
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entered[b] = true
	return err
}

// clear removes what it can of a piece, and makes branches of the rest: directories that are not
// empty. What an entry is, is not inspected first: that would cost as much as its removal.
func (r *removal) clear(b *branch, piece []string) {
	var children []string
	for _, name := range piece {
		if r.over.Load() {
			return
		}
		r.request()
		err := b.root.Remove(name) // as a file, then as a directory; never what a link leads to
		switch {
		case !b.isFull(name, err):
			r.count(err)
			r.fail(b, err)
		case b.depth < maxDepth || renameat(b.root, name, r.top.root, unique("lifted")) != nil:
			children = append(children, name)
		}
	}
	r.pushChildren(b, children)
}

// isFull reports whether an entry that could not be removed is a directory, which can be when it was
// emptied. Servers have more than one answer for that, so after an odd one the entry is inspected.
func (b *branch) isFull(name string, err error) bool {
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return false
	case errors.Is(err, fs.ErrExist):
		return true
	}
	info, err := b.root.Lstat(name)
	return err == nil && info.IsDir()
}

func (r *removal) count(err error) {
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept.Removed++
	if r.swept.Removed-r.reported >= r.options.Every {
		r.reported = r.swept.Removed
		r.options.Progress(r.swept)
	}
}

// fail records that a branch stays, and with it those above. What was removed by another process
// first is no failure. On another node, a stale handle may be all that says so; should the branch be there all
// the same, its own removal fails.
func (r *removal) fail(b *branch, err error) {
	if ignoreMissing(err) == nil || b != r.top && isGone(err) {
		return
	}
	r.note(b, err)
	for ; b != nil; b = b.parent {
		b.failed.Store(true)
	}
}

// note keeps the first few errors; the others are like them.
func (r *removal) note(b *branch, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, fmt.Errorf("emptying %s in %s: %w", quote(b.name), r.topDir.path, err))
	}
}

// closeHandles closes those of a removal that was stopped. The top is the caller's.
func (r *removal) closeHandles() {
	for b := range r.entered {
		if b.list != nil {
			_ = b.list.Close()
		}
		if b.parent != nil {
			_ = b.root.Close()
		}
	}
}
