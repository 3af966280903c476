// Package queue is the one worker loop of all control loops: it hands keys
// from client-go's typed rate-limited queue to a sync function, one key at a
// time, tries again what failed, and ends without leaving work half done. A
// queue that does not run, as on a standby, keeps no keys.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// SyncFunc moves the world one step nearer to what a key asks for. Repeating
// it must be harmless. After success the key is looked at again when the
// duration has passed; 0 waits for the next event.
type SyncFunc[K comparable] func(ctx context.Context, key K) (again time.Duration, err error)

// Options say how a queue behaves.
type Options struct {
	Name            string                    // of the loop, in logs and metrics
	KeyName         string                    // what a key is, in logs: claim, fileSystem
	FirstRetry      time.Duration             // after a first failure; it doubles from there
	MaxRetry        time.Duration             // longest wait between two tries
	DrainTimeout    time.Duration             // how long running syncs may go on after the end was asked for
	MetricsProvider workqueue.MetricsProvider // nil: client-go's process-wide one
	Log             *slog.Logger
}

// Queue feeds one sync function.
type Queue[K comparable] struct {
	options Options
	sync    SyncFunc[K]
	keys    workqueue.TypedRateLimitingInterface[K]
	running atomic.Bool
}

// New makes a queue; it starts nothing.
func New[K comparable](o Options, sync SyncFunc[K]) *Queue[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](o.FirstRetry, o.MaxRetry)
	config := workqueue.TypedRateLimitingQueueConfig[K]{Name: o.Name, MetricsProvider: o.MetricsProvider}
	return &Queue[K]{options: o, sync: sync, keys: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, config)}
}

// Running says whether keys are taken: event handlers need not find out the keys of a queue
// that does not run.
func (q *Queue[K]) Running() bool { return q.running.Load() }

// Add asks for a sync of a key. A key that waits already is synced once; one
// that is being synced is synced again afterwards. Before Run, nothing happens.
func (q *Queue[K]) Add(key K) {
	if q.Running() {
		q.keys.Add(key)
	}
}

// AddAfter asks for a sync of a key later. Before Run, nothing happens.
func (q *Queue[K]) AddAfter(key K, d time.Duration) {
	if q.Running() {
		q.keys.AddAfter(key, d)
	}
}

// Len is how many keys wait for their sync; those that were added for later do not count.
func (q *Queue[K]) Len() int { return q.keys.Len() }

// Run works on keys until the context ends. Then no further key is begun, and
// Run returns when the running syncs have, or an error when they were cut off
// at the drain timeout.
//
// What happened before Run is known from the caches only: enqueueAll adds the key of everything
// for which there may be something to do. It is called once the queue takes keys, so that an
// event is either seen by enqueueAll in the caches or adds its key itself.
func (q *Queue[K]) Run(ctx context.Context, workers int, enqueueAll func()) error {
	q.running.Store(true)
	enqueueAll()
	// A sync in the middle of its writes must not lose its context at the
	// moment that the process is asked to end.
	working, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { q.work(ctx, working) })
	}
	<-ctx.Done()
	q.keys.ShutDown()
	timer := time.AfterFunc(q.options.DrainTimeout, func() { cut(errCut) })
	defer timer.Stop()
	running.Wait()
	if errors.Is(context.Cause(working), errCut) {
		return fmt.Errorf("ending loop %s: %w after %s", q.options.Name, errCut, q.options.DrainTimeout)
	}
	return nil
}

var errCut = errors.New("syncs were cut off")

func (q *Queue[K]) work(asked, working context.Context) {
	for {
		key, shutdown := q.keys.Get()
		if shutdown {
			return
		}
		// What still waits when the end was asked for is left to the next leader.
		if asked.Err() == nil {
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

// Terminal marks an error that only an edit can mend: the key is not tried
// again until an event brings it back. nil stays nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &terminalError{err}
}

type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }
func (e *terminalError) Unwrap() error { return e.err }
