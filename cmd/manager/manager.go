package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/util/uuid"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/pkg/kube/election"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/queue"
)

// runner is the loops that the leader runs. Run returns after the running syncs have finished.
type runner interface {
	Run(ctx context.Context) error
}

// cacheSet is the caches that loops read. Every replica fills them.
type cacheSet interface {
	Run(ctx context.Context)
	Await(ctx context.Context) error
	HasSynced() bool
	// CaughtUp returns when the caches are at least as new as the call.
	CaughtUp(ctx context.Context) error
	// Behind names what Await or CaughtUp waits for; nil for nothing.
	Behind() error
}

type workload struct {
	caches cacheSet
	loops  runner
}

// manager is one replica.
type manager struct {
	options  options
	log      *slog.Logger
	program  *client.Program
	clients  clients
	clock    *clock.Clock
	events   *events.Broadcast
	election *election.Election // nil without --leader-elect
	metrics  *metrics

	leadsAlone atomic.Bool              // it leads without an election
	ending     atomic.Bool              // it was asked to end
	workload   atomic.Pointer[workload] // nil until it is wired
	waits      atomic.Pointer[wait]     // what it waits for before it starts or leads; nil for nothing
}

func manage(ctx context.Context, o options, log *slog.Logger) error {
	config, err := o.RESTConfig()
	if err != nil {
		return err
	}
	p := client.New(metricsNamespace, log)
	apiClock := clock.New(metricsNamespace, time.Now, log)
	c, err := newClients(config, o, p, apiClock)
	if err != nil {
		return err
	}
	m, err := newManager(o, p, c, apiClock)
	if err != nil {
		return err
	}
	log.Info("manager starts", "version", buildinfo.Read().String())
	return m.run(ctx, m.wire)
}

// newManager sends no request.
func newManager(o options, p *client.Program, c clients, apiClock *clock.Clock) (m *manager, err error) {
	p.Metrics.MustRegister(apiClock)
	m = &manager{options: o, log: p.Log, program: p, clients: c, clock: apiClock}
	m.metrics = newMetrics(p.Metrics, m.leading, m.waited)
	if !o.leaderElect {
		return m, nil
	}
	lease := o.lease
	lease.Requests, lease.Watches, lease.Log = m.clients.lease, m.clients.work, p.Log
	lease.Namespace, lease.Identity = o.Namespace, identity()
	m.election, err = election.New(lease)
	return m, err
}

// identity returns the pod's name, for users, and a part that is different after a restart.
func identity() string { return hostName() + "_" + string(uuid.NewUUID()) }

func hostName() string {
	host, _ := os.Hostname() // "" on error
	return cmp.Or(host, "unknown")
}

func (m *manager) leading() bool {
	return m.leadsAlone.Load() || m.election != nil && m.election.Leading()
}

// run starts and stops everything in order. Caches, events and the HTTP server outlive the loops: a sync
// that is running uses them.
//
// It ends within the 30 s that Kubernetes gives a pod: the drain timeouts of the loops and the time for
// events are shorter.
func (m *manager) run(ctx context.Context, wire func(context.Context) (workload, error)) error {
	server, err := httpserver.Listen(ctx, m.http())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { m.ending.Store(true) })()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	working, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var background sync.WaitGroup
	background.Go(func() {
		if err := server.Serve(serving); err != nil {
			fail(err)
		}
	})
	m.events = m.program.StartEvents(m.clients.warnings, m.clients.events)
	err = m.work(working, func(w workload) {
		background.Go(func() { w.caches.Run(serving) })
	}, wire)
	m.closeEvents(err)
	stop()
	background.Wait()
	if cause := context.Cause(working); ctx.Err() == nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return err
}

// closeEvents writes the remaining events, unless the work was interrupted: another replica may lead, and the
// process must not live longer.
func (m *manager) closeEvents(err error) {
	if errors.Is(err, queue.ErrInterrupted) {
		m.events.Close(0)
	} else {
		m.events.Close(events.FlushTimeout)
	}
}

// work waits for what the loops need, then until this replica leads. Only a replica whose caches are
// filled takes part in the election: others may be ready, and one that lacks a permission never is.
func (m *manager) work(ctx context.Context, start func(workload), wire func(context.Context) (workload, error)) error {
	w, err := wire(ctx)
	if ctx.Err() != nil {
		return nil // asked to end before the start
	}
	if err != nil {
		return err
	}
	start(w)
	m.workload.Store(&w)
	m.log.Info("waiting for the caches")
	if err := m.retry(ctx, "filling the caches", w.caches.Behind, w.caches.Await); err != nil {
		return nil
	}
	m.log.Info("caches are filled")
	if m.election != nil {
		return m.election.Run(ctx, func(ctx context.Context) error { return m.lead(ctx, w) })
	}
	m.leadsAlone.Store(true)
	defer m.leadsAlone.Store(false)
	return m.lead(ctx, w)
}

func (m *manager) lead(ctx context.Context, w workload) error {
	if err := m.retry(ctx, "bringing the caches up to date", w.caches.Behind, w.caches.CaughtUp); err != nil {
		return nil //nolint:nilerr // it only fails when the context ends
	}
	m.log.Info("loops start")
	err := w.loops.Run(ctx)
	if err == nil && ctx.Err() == nil {
		return errLoopEnded
	}
	if err == nil {
		m.log.Info("loops have ended")
	}
	return err
}

var errLoopEnded = errors.New("the loops ended although the manager was not asked to end")

const (
	// longWait is the time that a replica waits, before it starts or leads, until it reports the wait.
	longWait     = 5 * time.Second
	waitReminder = time.Minute // the time between two log lines about one wait
	// firstRetry and maxRetry are the shortest and longest time between two tries.
	firstRetry, maxRetry = 500 * time.Millisecond, 15 * time.Second
)

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

func (m *manager) waited() time.Duration {
	if w := m.waits.Load(); w != nil {
		return w.duration()
	}
	return 0
}

// retry repeats a request while the apiserver is unavailable, and says what it waits for. It fails only when the context
// ends.
func (m *manager) retry(ctx context.Context, doing string, detail func() error, try func(context.Context) error) error {
	w := &wait{doing: doing, since: time.Now(), detail: detail}
	m.waits.Store(w)
	defer m.waits.Store(nil)
	waiting, end := context.WithCancel(ctx)
	var logging sync.WaitGroup
	logging.Go(func() { m.logWait(waiting, w) })
	defer logging.Wait()
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
