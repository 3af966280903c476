package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// longWait is the time that a replica waits, before it starts or leads, until it reports the wait.
	longWait     = 5 * time.Second
	waitReminder = time.Minute // the time between two log lines about one wait
	// firstRetry and maxRetry are the shortest and longest time between two tries.
	firstRetry, maxRetry = 500 * time.Millisecond, 15 * time.Second
)

// wait is the condition that this replica waits for before it starts or leads.
type wait struct {
	doing  string // for users
	since  time.Time
	detail func() error          // what it waits for at the moment; nil when only failed says so
	failed atomic.Pointer[error] // of a try, until the next one begins; nil for none
}

func (w *wait) duration() time.Duration { return time.Since(w.since) }

// check returns what the replica waits for, once a try has failed or the wait is long.
func (w *wait) check() error {
	if err := w.failed.Load(); err != nil {
		return fmt.Errorf("%s: %w", w.doing, *err)
	}
	if w.duration() < longWait {
		return nil
	}
	if w.detail != nil {
		if err := w.detail(); err != nil {
			return fmt.Errorf("%s: %w", w.doing, err)
		}
	}
	return fmt.Errorf("%s takes %s", w.doing, w.duration().Round(time.Second))
}

// beginWait records a wait until end is called, and logs a long one.
func (m *manager) beginWait(ctx context.Context, doing string, detail func() error) (w *wait, end func()) {
	w = &wait{doing: doing, since: time.Now(), detail: detail}
	m.waits.Store(w)
	ctx, cancel := context.WithCancel(ctx)
	var logging sync.WaitGroup
	logging.Go(func() { m.logWait(ctx, w) })
	return w, func() {
		cancel()
		logging.Wait()
		m.waits.Store(nil)
	}
}

func (m *manager) logWait(ctx context.Context, w *wait) {
	next := time.NewTimer(longWait)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			m.log.Warn("start has to wait", "duration", w.duration().Round(time.Second), "err", w.check())
			next.Reset(waitReminder)
		}
	}
}

// waited returns how long this replica has been waiting; 0 when it does not wait.
func (m *manager) waited() time.Duration {
	if w := m.waits.Load(); w != nil {
		return w.duration()
	}
	return 0
}

// retry repeats a request while the apiserver is unavailable. It fails only when the context ends.
func (m *manager) retry(ctx context.Context, doing string, detail func() error, try func(context.Context) error) error {
	w, end := m.beginWait(ctx, doing, detail)
	defer end()
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(maxRetry), backoff.WithMaxElapsedTime(0))
	return backoff.RetryNotify(func() error {
		w.failed.Store(nil)
		return try(ctx)
	}, backoff.WithContext(policy, ctx), func(err error, next time.Duration) {
		w.failed.Store(&err)
		m.log.Warn("start has to wait", "requeueAfter", next.Round(time.Millisecond), "err", fmt.Errorf("%s: %w", doing, err))
	})
}
