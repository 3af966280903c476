package treewalk

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
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Removal empties a directory, such as the staging directory of sweeps, many branches at once: over NFS each
// removal is a round trip, and the kernel lets only one at a time into the same directory.
//
// A tenant may still have the tree open, and made it: it can be of any depth and width, and change
// meanwhile. Everything is removed through handles that os.Root keeps inside the tree. Memory and
// handles are bounded: a directory is read in pieces, the youngest piece first, and one that lies deep
// is moved to the top. A worker that has nothing to remove has more staged, so that what is staged is
// removed even if the time is over before all is.
type Removal struct {
	System  *fsroot.FileSystem
	Top     *Branch
	topDir  *fsroot.Dir
	options Options
	Request func() // called before each entry is removed

	over atomic.Bool // nothing more is begun; set under mu, because workers wait for it

	Mu       sync.Mutex
	wake     *sync.Cond
	Stage    func() (names []string, err error, more bool) // guarded by mu; nil when there is no more
	staging  bool                                          // guarded by mu; a worker is calling stage
	Waiting  []*Branch                                     // guarded by mu; the last one is next
	idle     int                                           // guarded by mu; workers without a branch
	Swept    operations.Swept                              // guarded by mu
	reported int64                                         // guarded by mu; removals at the last progress
	Errs     []error                                       // guarded by mu; the first few
	entered  map[*Branch]bool                              // guarded by mu; those with open handles
}

// Branch is a directory that is being emptied and removed. It is removed when its last user leaves:
// users are its reading, from when it waits for a worker to its end, workers that clear it, and children that
// are there.
type Branch struct {
	Parent *Branch // nil for the top, which stays
	Name   string
	Depth  int
	Root   *os.Root // nil until entered
	list   *os.File // nil unless it is being read
	passes int      // how often it was read to its end
	busy   int      // workers that clear it; guarded by removal.mu
	held   bool     // it is not among the waiting until one of those is done; guarded by removal.mu
	Users  atomic.Int64
	Failed atomic.Bool // it stays
}

const (
	PieceSize    = 256 // entries of a directory that are read at once
	maxDepth     = 16  // of open directories below each other
	maxPasses    = 4   // of a directory that is filled while it is emptied
	MaxBusy      = 4   // workers in one directory: the kernel lets only one change it, and others have work elsewhere
	maxErrors    = 8
	defaultEvery = 1000
)

// NewRemoval prepares to empty a directory, to which stage moves more.
func NewRemoval(f *fsroot.FileSystem, d *fsroot.Dir, stage func() ([]string, error, bool), options Options) *Removal {
	options.Every = cmp.Or(options.Every, defaultEvery)
	if options.Progress == nil {
		options.Progress = func(operations.Swept) {}
	}
	r := &Removal{System: f, topDir: d, Top: &Branch{Name: d.Path, Root: d.Root}, options: options, Stage: stage, entered: map[*Branch]bool{}}
	r.Request = func() { f.HookRequest(1) }
	r.wake = sync.NewCond(&r.Mu)
	return r
}

// NoMore stages nothing: what is in the directory is all.
func NoMore() (names []string, err error, more bool) { return nil, nil, false } //nolint:revive // as the type of stage

// Run empties the directory.
func (r *Removal) Run(ctx context.Context) (operations.Swept, error) {
	stop := context.AfterFunc(ctx, r.finish)
	defer stop()
	r.Top.Users.Add(1) // until no more is staged
	r.read(r.Top)
	var workers sync.WaitGroup
	for range r.options.Workers {
		workers.Go(func() { r.work(ctx) })
	}
	workers.Wait()
	r.closeHandles()
	r.options.Progress(r.Swept)
	if ctx.Err() != nil {
		r.Errs = append(r.Errs, &fsroot.StopError{Cause: context.Cause(ctx)})
	}
	return r.Swept, errors.Join(r.Errs...)
}

// work takes the youngest branch again and again, until none is left and no other worker makes any.
func (r *Removal) work(ctx context.Context) {
	for {
		b, stage := r.next()
		switch {
		case stage:
			r.stageMore()
		case b == nil:
			return
		default:
			if err := r.System.Before(ctx, "sweep "+b.Name); err != nil {
				r.note(b, err)
				r.finish()
				return
			}
			r.advance(b)
		}
	}
}

// next gives the next branch; nil is the end, unless the worker shall stage more.
func (r *Removal) next() (b *Branch, stage bool) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.idle++
	for len(r.Waiting) == 0 && !r.over.Load() {
		switch {
		case r.Stage != nil && !r.staging:
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
	b = r.Waiting[len(r.Waiting)-1]
	r.Waiting = r.Waiting[:len(r.Waiting)-1]
	return b, false
}

// stageMore has one more piece staged, and makes branches of it.
func (r *Removal) stageMore() {
	names, err, more := r.Stage()
	r.note(r.Top, err)
	r.pushChildren(r.Top, names)
	if !more {
		r.leave(r.Top)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Swept.Volumes += len(names)
	if !more {
		r.Stage = nil
	}
	r.staging = false
	r.wake.Broadcast()
}

// read has branches read from their beginning.
func (r *Removal) read(branches ...*Branch) {
	for _, b := range branches {
		b.Users.Add(1)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Waiting = append(r.Waiting, branches...)
	r.wake.Broadcast()
}

func (r *Removal) pushChildren(b *Branch, names []string) {
	children := make([]*Branch, len(names))
	for i, name := range names {
		b.Users.Add(1)
		children[i] = &Branch{Parent: b, Name: name, Depth: b.Depth + 1}
	}
	r.read(children...)
}

func (r *Removal) finish() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.over.Store(true)
	r.wake.Broadcast()
}

// leave ends one use of a branch. If it was the last one, the branch is removed, which ends a use of
// its parent.
func (r *Removal) leave(b *Branch) {
	for ; b != nil; b = b.Parent {
		if b.Users.Add(-1) > 0 || r.over.Load() || !r.RemoveBranch(b) {
			return
		}
	}
}

// RemoveBranch removes an emptied branch. One that is not empty after all is read again: a tenant
// still writes there, or the server's listing jumped because of what was removed.
func (r *Removal) RemoveBranch(b *Branch) (gone bool) {
	b.passes++
	if b.Parent == nil {
		r.rereadTop()
		return false
	}
	if !b.Failed.Load() {
		err := b.Parent.Root.Remove(b.Name)
		if errors.Is(err, fs.ErrExist) && b.passes < maxPasses {
			r.read(b)
			return false
		}
		r.count(err)
		r.Fail(b, err)
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if b.Root != nil {
		_ = b.Root.Close()
	}
	delete(r.entered, b)
	return true
}

// rereadTop reads the top until nothing is moved to it any more. What failed stays there.
func (r *Removal) rereadTop() {
	empty, err := r.topDir.IsEmpty()
	r.Fail(r.Top, err)
	if err == nil && !empty && !r.Top.Failed.Load() {
		r.read(r.Top)
	}
}

// advance reads one piece of a branch, lets another worker read the next one, and removes what
// is in its own.
func (r *Removal) advance(b *Branch) {
	if b.list == nil {
		if err := r.enter(b); err != nil {
			r.Fail(b, err)
			r.leave(b)
			return
		}
	}
	piece, err := b.list.Readdirnames(PieceSize)
	if err != nil {
		if !errors.Is(err, io.EOF) {
			r.Fail(b, err)
		}
		r.Fail(b, b.list.Close())
		b.list = nil
		r.leave(b)
		return
	}
	b.Users.Add(1)
	r.share(b)
	r.clear(b, piece)
	r.unshare(b)
	r.leave(b)
}

// share lets another worker read the next piece of a branch, unless enough are at work there.
func (r *Removal) share(b *Branch) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	b.busy++
	if b.held = b.busy == MaxBusy; !b.held {
		r.Waiting = append(r.Waiting, b)
		r.wake.Broadcast()
	}
}

func (r *Removal) unshare(b *Branch) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	b.busy--
	if b.held {
		b.held = false
		r.Waiting = append(r.Waiting, b)
		r.wake.Broadcast()
	}
}

// enter opens a branch, at its first piece.
func (r *Removal) enter(b *Branch) error {
	if b.Root == nil {
		root, err := b.Parent.Root.OpenRoot(b.Name)
		if err != nil {
			return err
		}
		b.Root = root
	}
	list, err := b.Root.Open(".")
	b.list = list
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.entered[b] = true
	return err
}

// clear removes what it can of a piece, and makes branches of the rest: directories that are not
// empty. What an entry is, is not inspected first: that would cost as much as its removal.
func (r *Removal) clear(b *Branch, piece []string) {
	var children []string
	for _, name := range piece {
		if r.over.Load() {
			return
		}
		r.Request()
		err := b.Root.Remove(name) // as a file, then as a directory; never what a link leads to
		switch {
		case !b.IsFull(name, err):
			r.count(err)
			r.Fail(b, err)
		case b.Depth < maxDepth || fsroot.Renameat(b.Root, name, r.Top.Root, fsroot.Unique("lifted")) != nil:
			children = append(children, name)
		}
	}
	r.pushChildren(b, children)
}

// IsFull reports whether an entry that could not be removed is a directory, which can be when it was
// emptied. Servers have more than one answer for that, so after an odd one the entry is inspected.
func (b *Branch) IsFull(name string, err error) bool {
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return false
	case errors.Is(err, fs.ErrExist):
		return true
	}
	info, err := b.Root.Lstat(name)
	return err == nil && info.IsDir()
}

func (r *Removal) count(err error) {
	if err != nil {
		return
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Swept.Removed++
	if r.Swept.Removed-r.reported >= r.options.Every {
		r.reported = r.Swept.Removed
		r.options.Progress(r.Swept)
	}
}

// Fail records that a branch stays, and with it those above. What was removed by another process
// first is no failure. On another node, a stale handle may be all that says so; should the branch be there all
// the same, its own removal fails.
func (r *Removal) Fail(b *Branch, err error) {
	if fsroot.IgnoreMissing(err) == nil || b != r.Top && fsroot.IsGone(err) {
		return
	}
	r.note(b, err)
	for ; b != nil; b = b.Parent {
		b.Failed.Store(true)
	}
}

// note keeps the first few errors; the others are like them.
func (r *Removal) note(b *Branch, err error) {
	if err == nil {
		return
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if len(r.Errs) < maxErrors {
		r.Errs = append(r.Errs, fmt.Errorf("emptying %s in %s: %w", fsroot.Quote(b.Name), r.topDir.Path, err))
	}
}

// closeHandles closes those of a removal that was stopped. The top is the caller's.
func (r *Removal) closeHandles() {
	for b := range r.entered {
		if b.list != nil {
			_ = b.list.Close()
		}
		if b.Parent != nil {
			_ = b.Root.Close()
		}
	}
}
