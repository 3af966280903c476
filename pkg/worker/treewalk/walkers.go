// Package treewalk walks trees of files side by side, at a pace of requests to the server, and empties directories.
package treewalk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Walkers walk trees of files together. Each walks the directories that it finds itself, unless another one is free for
// them: so what is held in memory is bounded by the depth of the trees.
type Walkers struct {
	System *fsroot.FileSystem
	atOnce int
	group  errgroup.Group
	pace   *rate.Limiter // of the requests to the server
}

// paceBurst is what may begin at once after a pause.
const paceBurst = 50 * time.Millisecond

// NewWalkers returns walkers that are so many, and begin so many requests in a second; 0 is any number.
func NewWalkers(f *fsroot.FileSystem, atOnce, perSecond int) *Walkers {
	limit := cmp.Or(rate.Limit(perSecond), rate.Inf)
	burst := perSecond * int(paceBurst) / int(time.Second)
	w := &Walkers{System: f, atOnce: atOnce, pace: rate.NewLimiter(limit, max(burst, 1))}
	w.group.SetLimit(atOnce)
	return w
}

// Here has a free walker do something; if there is none, the caller does it.
func (w *Walkers) Here(do func()) {
	if !w.group.TryGo(func() error { do(); return nil }) {
		do()
	}
}

// Next has the next free walker do something; without walkers, the caller does it.
func (w *Walkers) Next(do func()) {
	if w.atOnce == 0 {
		do()
		return
	}
	w.group.Go(func() error { do(); return nil })
}

// Some calls do with a few of the names at a time, side by side, and returns all that it has returned.
func (w *Walkers) Some(names []string, few int, do func([]string) []string) (all []string) {
	var mu sync.Mutex
	var working sync.WaitGroup
	for some := range slices.Chunk(names, few) {
		working.Add(1)
		w.Here(func() {
			defer working.Done()
			got := do(some)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	working.Wait()
	return all
}

// Wait waits until all are free.
func (w *Walkers) Wait() { _ = w.group.Wait() }

// Request waits until n more requests to the server may begin.
func (w *Walkers) Request(ctx context.Context, n int) {
	w.keepPace(ctx, n)
	w.System.HookRequest(n)
}

// atServer is the least time of a server's answer. A client that knows an entry's attributes answers in microseconds.
const atServer = 100 * time.Microsecond

// MayRequest does what is a request to the server unless the client knows the answer. Only a request counts.
func (w *Walkers) MayRequest(ctx context.Context, do func()) {
	began := time.Now()
	w.System.HookRequest(1)
	do()
	if time.Since(began) >= atServer {
		w.keepPace(ctx, 1)
	}
}

// keepPace ends early when ctx does. A limiter does not wait at all if it would wait for longer than ctx lasts.
func (w *Walkers) keepPace(ctx context.Context, n int) {
	for range n {
		if w.pace.Wait(ctx) != nil {
			<-ctx.Done()
		}
	}
}

// Options configure how the trash is emptied.
type Options struct {
	// Workers is how many directories are emptied, or records read, at once; 0 is fsroot.DefaultSweepWorkers.
	Workers int
	// Progress, if not nil, is called after every removal; one call at a time.
	Progress func(operations.Swept)
}

const (
	pieceSize = 256 // entries of a directory that are read at once
	clearedBy = 64  // of which so many are removed by one walker: more than four in a directory would wait for each other
	maxDepth  = 16  // of open directories below each other
	maxPasses = 4   // of a directory that is filled while it is emptied
	maxErrors = 8
)

// removal empties a directory, many branches at once: over NFS each removal is a round trip, and the kernel lets only
// one at a time into the same directory.
//
// A tenant may have the tree open, and made it: it can be of any depth and width, and change meanwhile. Handles that
// os.Root keeps inside the tree remove everything. Memory and handles are bounded: a directory is read in pieces, and
// one that lies deep is moved to the top.
type removal struct {
	*Walkers
	topDir  *fsroot.Dir
	top     *branch
	options Options
	stop    context.CancelFunc // ends the removal after a step that failed

	mu    sync.Mutex
	swept operations.Swept // guarded by mu
	errs  []error          // guarded by mu; the first few
}

// branch is a directory that is removed when its last user leaves: the walker that reads it, and its children.
type branch struct {
	parent *branch // nil for the top, which stays
	name   string
	depth  int
	root   *os.Root // nil until entered
	passes int      // how often it was read to its end
	users  atomic.Int64
	failed atomic.Bool // it stays
}

// Empty removes what is in a directory, and what stage moves there, a piece of names at a time, when a walker is free
// for more. So what is staged is removed even if the time is over before all is. A nil stage moves nothing.
func Empty(job context.Context, w *Walkers, d *fsroot.Dir, stage iter.Seq2[[]string, error], options Options) (operations.Swept, error) {
	ctx, stop := context.WithCancel(job)
	defer stop()
	r := newRemoval(w, d, options)
	r.stop = stop
	r.walk(ctx, r.top) // what an earlier run has left
	if stage != nil {
		r.removeStaged(ctx, stage)
	}
	r.Wait()
	// What was moved there meanwhile, until nothing is. What failed stays.
	for ctx.Err() == nil && !r.top.failed.Load() {
		empty, err := d.IsEmpty()
		if r.fail(r.top, err); err != nil || empty {
			break
		}
		r.walk(ctx, r.top)
		r.Wait()
	}
	r.options.Progress(r.swept)
	return r.swept, errors.Join(append(r.errs, fsroot.Stopped(job))...)
}

func newRemoval(w *Walkers, d *fsroot.Dir, options Options) *removal {
	if options.Progress == nil {
		options.Progress = func(operations.Swept) {}
	}
	return &removal{Walkers: w, topDir: d, top: &branch{name: d.Path, root: d.Root}, options: options}
}

func (r *removal) removeStaged(ctx context.Context, stage iter.Seq2[[]string, error]) {
	for names, err := range stage {
		r.note(r.top, err)
		r.mu.Lock()
		r.swept.Volumes += len(names)
		r.mu.Unlock()
		for _, name := range names {
			r.Next(r.below(ctx, r.top, name))
		}
	}
}

// below returns the walk of a directory in another one, which it keeps in use until then.
func (r *removal) below(ctx context.Context, parent *branch, name string) (walk func()) {
	parent.users.Add(1)
	b := &branch{parent: parent, name: name, depth: parent.depth + 1}
	b.users.Add(1)
	return func() { r.walk(ctx, b) }
}

// walk removes what is in a branch, piece by piece, and leaves it.
func (r *removal) walk(ctx context.Context, b *branch) {
	defer r.leave(ctx, b)
	if ctx.Err() != nil {
		return
	}
	list, err := b.open()
	if err != nil {
		r.fail(b, err)
		return
	}
	defer list.Close()
	next := func() ([]string, error) {
		if err := r.System.Before(ctx, "sweep "+b.name); err != nil {
			r.stop()
			return nil, err
		}
		return list.Readdirnames(pieceSize)
	}
	for piece, err := range fsroot.Pieces(ctx, next) {
		r.fail(b, err)
		for _, name := range r.Some(piece, clearedBy, func(names []string) []string { return r.clear(ctx, b, names) }) {
			r.Here(r.below(ctx, b, name))
		}
	}
}

func (b *branch) open() (list *os.File, err error) {
	if b.root == nil {
		if b.root, err = b.parent.root.OpenRoot(b.name); err != nil {
			return nil, err
		}
	}
	return b.root.Open(".")
}

// leave ends one use of a branch. The last one removes the branch, which ends a use of its parent. One that is not
// empty after all is walked again: a tenant still writes there, or removals made the listing jump.
func (r *removal) leave(ctx context.Context, b *branch) {
	for ; b.parent != nil && b.users.Add(-1) == 0; b = b.parent {
		if ctx.Err() == nil && !b.failed.Load() && !r.removeBranch(b) {
			b.users.Add(1)
			r.walk(ctx, b)
			return
		}
		if b.root != nil {
			_ = b.root.Close()
		}
	}
}

func (r *removal) removeBranch(b *branch) (gone bool) {
	b.passes++
	err := b.parent.root.Remove(b.name)
	if errors.Is(err, fs.ErrExist) && b.passes < maxPasses {
		return false
	}
	r.count(err)
	r.fail(b, err)
	return true
}

// clear removes what it can of some entries, and returns the others: directories that are not
// empty. What an entry is, is not inspected first: that would cost as much as its removal.
func (r *removal) clear(ctx context.Context, b *branch, names []string) (full []string) {
	for _, name := range names {
		r.Request(ctx, 1)
		if ctx.Err() != nil {
			return nil
		}
		err := b.root.Remove(name) // as a file, then as a directory; never what a link leads to
		switch {
		case !b.isFull(name, err):
			r.count(err)
			r.fail(b, err)
		case b.depth < maxDepth || fsroot.Renameat(b.root, name, r.topDir.Root, fsroot.Unique("lifted")) != nil:
			full = append(full, name)
		}
	}
	return full
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
	r.options.Progress(r.swept)
}

// fail records that a branch stays, and with it those above. What was removed by another process
// first is no failure. On another node, a stale handle may be all that says so; should the branch be there all
// the same, its own removal fails.
func (r *removal) fail(b *branch, err error) {
	if fsroot.IgnoreMissing(err) == nil || b != r.top && fsroot.IsGone(err) {
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
		r.errs = append(r.errs, fmt.Errorf("emptying %s in %s: %w", fsroot.Quote(b.name), r.topDir.Path, err))
	}
}
