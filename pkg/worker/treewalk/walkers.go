// Package treewalk walks trees of files side by side, at a pace of requests to the server, and empties directories.
package treewalk

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Walkers are the goroutines that walk trees of files together. Each walks the directories that it finds itself,
// unless another one is free for them: so what is held in memory is bounded by the depth of the trees.
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
	limit := rate.Limit(perSecond)
	if perSecond == 0 {
		limit = rate.Inf
	}
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
