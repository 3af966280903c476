package directories

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
)

// walkers are the goroutines that walk trees of files together. Each walks the directories that it finds itself,
// unless another one is free for them: so what is held in memory is bounded by the depth of the trees.
type walkers struct {
	fs    *FileSystem
	group errgroup.Group
	pace  *rate.Limiter // of the requests to the server
}

// paceBurst is what may begin at once after a pause.
const paceBurst = 50 * time.Millisecond

// newWalkers returns walkers that are so many, and begin so many requests in a second.
func newWalkers(f *FileSystem, atOnce, perSecond int) *walkers {
	burst := perSecond * int(paceBurst) / int(time.Second)
	w := &walkers{fs: f, pace: rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))}
	w.group.SetLimit(atOnce)
	return w
}

// try has a free walker do something, if there is one.
func (w *walkers) try(do func()) bool { return w.group.TryGo(func() error { do(); return nil }) }

// next has the next free walker do something.
func (w *walkers) next(do func()) { w.group.Go(func() error { do(); return nil }) }

// wait waits until all are free.
func (w *walkers) wait() { _ = w.group.Wait() }

// request waits until n more requests to the server may begin.
func (w *walkers) request(ctx context.Context, n int) {
	w.keepPace(ctx, n)
	w.fs.hookRequest(n)
}

// atServer is how long an answer takes at least that comes from the server. A client that has an entry's
// attributes from reading the directory answers in microseconds.
const atServer = 100 * time.Microsecond

// mayRequest does what is a request to the server unless the client knows the answer. Only a request counts.
func (w *walkers) mayRequest(ctx context.Context, do func()) {
	began := time.Now()
	w.fs.hookRequest(1)
	do()
	if time.Since(began) >= atServer {
		w.keepPace(ctx, 1)
	}
}

// keepPace ends early when ctx does. A limiter does not wait at all if it would wait for longer than ctx lasts.
func (w *walkers) keepPace(ctx context.Context, n int) {
	for range n {
		if w.pace.Wait(ctx) != nil {
			<-ctx.Done()
		}
	}
}
