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
	// longWait is how long a replica may wait, before it starts or before it leads, without
	// saying for what.
	longWait = 5 * time.Second
	// waitReminder is the time between two log lines about one wait.
	waitReminder = time.Minute
)

// wait is what this replica waits for before it can start, or lead.
type wait struct {
	doing  string // for people
	since  time.Time
	detail func() error          // what is waited for at the moment; nil when only failed says so
	failed atomic.Pointer[error] // of a try, until the next one begins; nil for none
}

func (w *wait) duration() time.Duration { return time.Since(w.since) }

// check says what is waited for, once a try has failed or the wait is long.
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

// begin records what is waited for, until end is called. A long wait is logged.
func (m *manager) begin(ctx context.Context, doing string, detail func() error) (w *wait, end func()) {
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

// waited is how long this replica has been waiting; 0 when it does not.
func (m *manager) waited() time.Duration {
	if w := m.waits.Load(); w != nil {
		return w.duration()
	}
	return 0
}

// insist repeats what the apiserver may not be there for. It fails only when the context ends.
func (m *manager) insist(ctx context.Context, doing string, detail func() error, try func(context.Context) error) error {
	w, end := m.begin(ctx, doing, detail)
	defer end()
	policy := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstInsistence), backoff.WithMaxInterval(maxInsistence), backoff.WithMaxElapsedTime(0))
	return backoff.RetryNotify(func() error {
		w.failed.Store(nil)
		return try(ctx)
	}, backoff.WithContext(policy, ctx), func(err error, next time.Duration) {
		w.failed.Store(&err)
		m.log.Warn("start has to wait", "requeueAfter", next.Round(time.Millisecond), "err", fmt.Errorf("%s: %w", doing, err))
	})
}
