// Package queue is the worker loop of all control loops: it hands keys from client-go's typed
// rate-limited queue to a sync function, each key to one worker at a time, retries syncs that failed,
// and drains running syncs at the end. A queue that does not run, as on a standby, keeps no keys.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// SyncFunc reconciles the object of a key by one step. Repeating it must be harmless. After success
// the key is synced again after the duration; 0 waits for the next event.
type SyncFunc[K comparable] func(ctx context.Context, key K) (again time.Duration, err error)

// Options configure a queue.
type Options struct {
	Name         string        // of the loop, in logs and metrics
	KeyName      string        // what a key is, in logs: claim, fileSystem
	FirstRetry   time.Duration // after a first failure; it doubles from there
	MaxRetry     time.Duration // longest wait between two tries; 0 is a minute
	DrainTimeout time.Duration // of running syncs, once the context of Run has ended; 0 is 15 seconds, negative is none
	Log          *slog.Logger
}

// Queue calls one sync function.
type Queue[K comparable] struct {
	options Options
	sync    SyncFunc[K]
	keys    workqueue.TypedRateLimitingInterface[K]
	running atomic.Bool
}

// New makes a queue; it starts nothing.
func New[K comparable](o Options, sync SyncFunc[K]) *Queue[K] {
	o.MaxRetry, o.DrainTimeout = cmp.Or(o.MaxRetry, time.Minute), cmp.Or(o.DrainTimeout, 15*time.Second)
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](o.FirstRetry, o.MaxRetry)
	config := workqueue.TypedRateLimitingQueueConfig[K]{Name: o.Name}
	return &Queue[K]{options: o, sync: sync, keys: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)}
}

// Running reports whether the queue accepts keys. While it does not, event handlers need not compute them.
func (q *Queue[K]) Running() bool { return q.running.Load() }

// Add enqueues a key. A key that waits already is synced once; a key that is being synced is synced
// again afterwards. Before Run, Add does nothing.
func (q *Queue[K]) Add(key K) {
	if q.Running() {
		q.keys.Add(key)
	}
}

// AddAfter enqueues a key after a delay. Before Run, it does nothing.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	if q.Running() {
		q.keys.AddAfter(key, d)
	}
}

// Len returns the number of keys that wait for their sync, without those that AddAfter delays.
func (q *Queue[K]) Len() int { return q.keys.Len() }

// ErrInterrupted is in the cause of a context that ends because another process may do the same work already:
// running syncs are cancelled with it, without a drain.
var ErrInterrupted = errors.New("the work is interrupted")

// Run syncs keys until the context ends, and then returns when the running syncs have, or with an
// error when they were cancelled at the drain timeout.
//
// enqueueAll adds the keys of all objects in the caches that may need a sync, as the queue has taken
// no event before Run. It is called once the queue accepts keys, so that an event is either in the
// caches that enqueueAll reads or adds its key itself.
func (q *Queue[K]) Run(ctx context.Context, workers int, enqueueAll func()) error {
	q.running.Store(true)
	enqueueAll()
	// A sync in the middle of its writes keeps its context when the process is asked to end.
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { q.work(ctx, working) })
	}
	<-ctx.Done()
	q.keys.ShutDown()
	if cause := context.Cause(ctx); errors.Is(cause, ErrInterrupted) {
		cancel(cause)
	}
	defer time.AfterFunc(q.options.DrainTimeout, func() { cancel(errCancelled) }).Stop()
	running.Wait()
	if errors.Is(context.Cause(working), errCancelled) {
		return fmt.Errorf("ending loop %s: %w after %s", q.options.Name, errCancelled, q.options.DrainTimeout)
	}
	return nil
}

var errCancelled = errors.New("syncs were cancelled")

func (q *Queue[K]) work(ctx, working context.Context) {
	for {
		key, shutdown := q.keys.Get()
		if shutdown {
			return
		}
		// Keys that still wait at the end are left to the next leader.
		if ctx.Err() == nil {
			q.handle(working, key)
		}
		q.keys.Done(key)
	}
}

func (q *Queue[K]) handle(ctx context.Context, key K) {
	again, err := q.sync(ctx, key)
	log := q.options.Log.With("controller", q.options.Name, q.options.KeyName, key)
	switch terminal := (*terminalError)(nil); {
	case errors.As(err, &terminal):
		q.keys.Forget(key)
		log.Warn("sync cannot succeed as things are", "err", err)
	case err != nil:
		q.keys.AddRateLimited(key)
		log.Error("sync failed", "err", err)
	default:
		q.keys.Forget(key)
		if again > 0 {
			q.keys.AddAfter(key, again)
		}
	}
}

// Terminal marks an error that only an edit of the object can mend: the key is not retried, only
// synced at its next event. nil stays nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ error }

func (e *terminalError) Unwrap() error { return e.error }
