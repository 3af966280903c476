package directories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// removal empties one directory, many branches at once: over NFS each removal is a round trip,
// and the kernel lets only one at a time into the same directory.
//
// A tenant may still have the tree open, and made it: it can be of any depth and width, and
// change meanwhile. A worker that has nothing to remove has more condemned, so that what is condemned
// is removed even if the time is over before all is. Everything is removed through handles that os.Root keeps inside the tree.
// Memory and handles are bounded: a directory is read in pieces, the youngest piece first, and
// one that lies deep is moved to the top.
type removal struct {
	fs      *FileSystem
	top     *branch
	every   int64
	workers int
	tell    func(operations.Swept)

	mu      sync.Mutex
	wake    *sync.Cond
	condemn func() (names []string, err error, more bool) // guarded by mu; nil when there is no more
	busy    bool                                          // guarded by mu; a worker is calling condemn
	waiting []*branch                                     // guarded by mu; the last one is next
	idle    int                                           // guarded by mu; workers without a branch
	over    bool                                          // guarded by mu
	swept   operations.Swept                              // guarded by mu
	told    int64                                         // guarded by mu; removals at the last progress
	errs    []error                                       // guarded by mu; the first few

	entered map[*branch]bool // guarded by mu; those with open handles
}

const (
	pieceSize  = 256 // entries of a directory that are read at once
	maxDepth   = 16  // of open directories below each other
	maxPasses  = 4   // of a directory that is filled while it is emptied
	maxErrors  = 8
	tellAlways = 1000
)

func newRemoval(f *FileSystem, folder *os.Root, condemn func() ([]string, error, bool), options SweepOptions) *removal {
	r := &removal{fs: f, entered: map[*branch]bool{}, condemn: condemn, every: options.Every, workers: options.Workers, tell: options.Progress}
	r.wake = sync.NewCond(&r.mu)
	r.top = &branch{name: inTrash(sweepingName), folder: folder}
	if r.every <= 0 {
		r.every = tellAlways
	}
	if r.tell == nil {
		r.tell = func(operations.Swept) {}
	}
	return r
}

func (r *removal) run(ctx context.Context) (operations.Swept, error) {
	stop := context.AfterFunc(ctx, r.finish)
	defer stop()
	r.hold(r.top) // until no more is condemned
	r.push(r.top)
	var workers sync.WaitGroup
	for range r.workers {
		workers.Go(func() { r.work(ctx) })
	}
	workers.Wait()
	r.close()
	r.tell(r.swept)
	if ctx.Err() != nil {
		r.errs = append(r.errs, &stopError{context.Cause(ctx)})
	}
	return r.swept, errors.Join(r.errs...)
}

// work takes the youngest branch again and again, until none is left and nobody makes any.
func (r *removal) work(ctx context.Context) {
	for b := r.next(); b != nil; b = r.next() {
		if err := r.fs.before(ctx, "sweep "+b.name); err != nil {
			r.note(b, err)
			r.finish()
			return
		}
		r.advance(b)
	}
}

func (r *removal) next() *branch {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle++
	for len(r.waiting) == 0 && !r.over {
		if r.condemn != nil && !r.busy {
			r.condemnMore()
			continue
		}
		if r.idle == r.workers {
			r.over = true
			r.wake.Broadcast()
			break
		}
		r.wake.Wait()
	}
	if r.over {
		return nil
	}
	r.idle--
	b := r.waiting[len(r.waiting)-1]
	r.waiting = r.waiting[:len(r.waiting)-1]
	return b
}

// condemnMore has one more piece condemned, and makes branches of it. The caller has the mutex.
func (r *removal) condemnMore() {
	condemn := r.condemn
	r.busy = true
	r.idle--
	r.mu.Unlock()
	names, err, more := condemn()
	r.note(r.top, err)
	children := make([]*branch, len(names))
	for i, name := range names {
		r.hold(r.top)
		children[i] = &branch{parent: r.top, name: name, depth: 1}
	}
	r.push(children...)
	if !more {
		r.letGo(r.top)
	}
	r.mu.Lock()
	r.swept.Volumes += len(names)
	if !more {
		r.condemn = nil
	}
	r.busy = false
	r.idle++
	r.wake.Broadcast()
}

func (r *removal) push(branches ...*branch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, branches...)
	r.wake.Broadcast()
}

func (r *removal) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.wake.Broadcast()
}

// advance reads one piece of a branch, lets another worker read the next one, and removes what
// is in its own.
func (r *removal) advance(b *branch) {
	if b.list == nil {
		r.hold(b)
		if err := r.enter(b); err != nil {
			r.fail(b, err)
			r.letGo(b)
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
		r.letGo(b)
		return
	}
	r.hold(b)
	r.push(b)
	r.clear(b, piece)
	r.letGo(b)
}

// enter opens a branch, at its first piece.
func (r *removal) enter(b *branch) error {
	if b.folder == nil {
		folder, err := b.parent.folder.OpenRoot(b.name)
		if err != nil {
			return err
		}
		b.folder = folder
	}
	list, err := b.folder.Open(".")
	b.list = list
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entered[b] = true
	return err
}

// clear removes what it can of a piece, and makes branches of the rest: directories that are not
// empty. What something is, is not asked first: that would cost as much as its removal.
func (r *removal) clear(b *branch, piece []string) {
	var children []*branch
	for _, name := range piece {
		if r.isOver() {
			return
		}
		err := b.folder.Remove(name) // as a file, then as a directory; never what a link leads to
		if !b.isFull(name, err) {
			r.count(err)
			r.fail(b, err)
			continue
		}
		if b.depth >= maxDepth && r.lift(b, name) {
			continue
		}
		children = append(children, &branch{parent: b, name: name, depth: b.depth + 1})
	}
	for range children {
		r.hold(b)
	}
	r.push(children...)
}

func (r *removal) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// isFull says that what could not be removed is a directory, which may go when what is in it is
// gone. Servers have more than one answer for that, so after an odd one it is looked at.
func (b *branch) isFull(name string, err error) bool {
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return false
	case errors.Is(err, fs.ErrExist):
		return true
	}
	info, err := b.folder.Lstat(name)
	return err == nil && info.IsDir()
}

// lift moves a deep directory to the top, where the next pass finds it.
func (r *removal) lift(b *branch, name string) bool {
	return renameBetween(b.folder, name, r.top.folder, unique("lifted")) == nil
}

func (r *removal) count(err error) {
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept.Removed++
	if r.swept.Removed-r.told >= r.every {
		r.told = r.swept.Removed
		r.tell(r.swept)
	}
}

// fail says that a branch stays, and with it those above. What somebody else removed first is no
// failure.
func (r *removal) fail(b *branch, err error) {
	err = ignoreMissing(err)
	r.note(b, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; err != nil && b != nil; b = b.parent {
		b.failed = true
	}
}

// hasFailed asks about one branch, or about all of them.
func (r *removal) hasFailed(b *branch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b == nil {
		return len(r.errs) > 0
	}
	return b.failed
}

// note keeps the first few problems; the others are like them.
func (r *removal) note(b *branch, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, fmt.Errorf("emptying %s in %s: %w", quote(b.name), wellknown.TrashDirectory, err))
	}
}

// close lets go of what a removal that was stopped had open. The top is the caller's.
func (r *removal) close() {
	for b := range r.entered {
		if b.list != nil {
			_ = b.list.Close()
		}
		if b.parent != nil {
			closeRoot(b.folder)
		}
	}
}
