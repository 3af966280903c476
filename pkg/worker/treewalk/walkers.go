package treewalk

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Walkers are the goroutines that walk trees of files together. Each walks the directories that it finds itself,
// unless another one is free for them: so what is held in memory is bounded by the depth of the trees.
type Walkers struct {
	System *fsroot.FileSystem
	group  errgroup.Group
	pace   *rate.Limiter // of the requests to the server
}

// PaceBurst is what may begin at once after a pause.
const PaceBurst = 50 * time.Millisecond

// NewWalkers returns walkers that are so many, and begin so many requests in a second.
func NewWalkers(f *fsroot.FileSystem, atOnce, perSecond int) *Walkers {
	burst := perSecond * int(PaceBurst) / int(time.Second)
	w := &Walkers{System: f, pace: rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))}
	w.group.SetLimit(atOnce)
	return w
}

// Try has a free walker do something, if there is one.
func (w *Walkers) Try(do func()) bool { return w.group.TryGo(func() error { do(); return nil }) }

// Next has the next free walker do something.
func (w *Walkers) Next(do func()) { w.group.Go(func() error { do(); return nil }) }

// Wait waits until all are free.
func (w *Walkers) Wait() { _ = w.group.Wait() }

// Request waits until n more requests to the server may begin.
func (w *Walkers) Request(ctx context.Context, n int) {
	w.keepPace(ctx, n)
	w.System.HookRequest(n)
}

// atServer is how long an answer takes at least that comes from the server. A client that has an entry's
// attributes from reading the directory answers in microseconds.
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

// Options say how the trash is emptied.
type Options struct {
	// Workers is how many directories are emptied, or records read, at once; 0 is
	// DefaultSweepWorkers.
	Workers int
	// Progress, if not nil, is called after every Every removals; one call at a time.
	Progress func(operations.Swept)
	Every    int64 // 0 is 1000
}
