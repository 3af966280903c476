package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"

	"gnuthought.com/efs-stunnel/pkg/apiclock"
	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/election"
	"gnuthought.com/efs-stunnel/pkg/events"
	"gnuthought.com/efs-stunnel/pkg/forbidden"
	"gnuthought.com/efs-stunnel/pkg/httpserver"
)

// Times of start and end. The end is at most the loops' own drain timeouts and these, within
// the 30s that Kubernetes gives a pod.
const (
	firstInsistence = 500 * time.Millisecond // between two tries of what must succeed to start
	maxInsistence   = 15 * time.Second
	flushTimeout    = 3 * time.Second // of events
)

// component is the source of our events.
const component = "efs-stunnel"

// loop is what the leader runs. Run returns after the context has ended and the syncs that were
// under way have, too.
type loop interface {
	Run(ctx context.Context) error
}

// knowledge is the caches that loops read, which every replica keeps warm.
type knowledge interface {
	Run(ctx context.Context)
	Await(ctx context.Context) error
	HasSynced() bool
	// CaughtUp returns when the caches are at least as new as the call.
	CaughtUp(ctx context.Context) error
	// Behind names what Await or CaughtUp waits for; nil for nothing.
	Behind() error
}

// workload is what there is to do, and what it is decided from.
type workload struct {
	caches knowledge
	loops  []loop
}

// manager is one replica.
type manager struct {
	options   options
	log       *slog.Logger
	clients   clients
	forbidden *forbidden.Tracker
	clock     *apiclock.Clock
	events    *events.Broadcast
	election  *election.Election // nil without --leader-elect
	metrics   *metrics

	alone  atomic.Bool              // leads without an election
	ending atomic.Bool              // was asked to end
	made   atomic.Pointer[workload] // nil until it could be put together
	waits  atomic.Pointer[wait]     // what keeps it from starting or from leading; nil for nothing
}

// manage runs a replica until the context ends.
func manage(ctx context.Context, o options, log *slog.Logger) error {
	config, err := restConfig(o.kubeconfig, o.master)
	if err != nil {
		return err
	}
	tracker := forbidden.New(metricsNamespace, log, time.Now)
	clock := apiclock.New(metricsNamespace, time.Now, log)
	c, err := newClients(config, o, tracker, clock)
	if err != nil {
		return err
	}
	m, err := newManager(o, c, tracker, clock, log)
	if err != nil {
		return err
	}
	log.Info("manager starts", "reason", "build "+buildinfo.Read().String())
	return m.run(ctx, m.wire)
}

// newManager asks the apiserver nothing yet.
func newManager(o options, c clients, tracker *forbidden.Tracker, clock *apiclock.Clock, log *slog.Logger) (*manager, error) {
	m := &manager{options: o, clients: c, forbidden: tracker, clock: clock, log: log}
	var err error
	if m.metrics, err = newMetrics(m.leading, m.waited, m.forbidden, m.clock); err != nil {
		return nil, fmt.Errorf("making metrics: %w", err)
	}
	if !o.leaderElect {
		return m, nil
	}
	m.election, err = election.New(election.Options{
		Requests: m.clients.lease, Watches: m.clients.work,
		Namespace: o.namespace, Name: o.lease.name, Identity: identity(),
		LeaseDuration: o.lease.leaseDuration, RenewDeadline: o.lease.renewDeadline, RetryPeriod: o.lease.retryPeriod,
		Log: log,
	})
	return m, err
}

// identity begins with the pod's name, for people; the rest tells a restarted container from
// what it was before.
func identity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

func (m *manager) leading() bool {
	return m.alone.Load() || m.election != nil && m.election.Leading()
}

// run begins and ends everything in order. What serves the loops outlives them: a sync that is
// under way reads caches and records events, and is looked at through HTTP.
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
	m.events = events.Start(events.Options{
		Client: m.clients.events, Component: component, Dropped: m.metrics.countDropped, Log: m.log,
	})
	err = m.work(working, func(w workload) {
		background.Go(func() { w.caches.Run(serving) })
	}, wire)
	m.closeEvents(ctx)
	stop()
	background.Wait()
	if cause := context.Cause(working); ctx.Err() == nil && cause != nil {
		err = errors.Join(err, cause)
	}
	return err
}

// work waits for what it needs, then for its turn to lead. Only a replica whose caches are full
// takes part in the election: another one may be readier, and one that lacks a right is none.
func (m *manager) work(ctx context.Context, start func(workload), wire func(context.Context) (workload, error)) error {
	w, err := wire(ctx)
	if ctx.Err() != nil {
		return nil // the end came before the beginning
	}
	if err != nil {
		return err
	}
	start(w)
	m.made.Store(&w)
	m.log.Info("waiting for the caches")
	if err := m.fill(ctx, w.caches); err != nil {
		return nil
	}
	m.log.Info("caches are filled")
	if m.election != nil {
		return m.election.Run(ctx, func(ctx context.Context) error { return m.lead(ctx, w) })
	}
	m.alone.Store(true)
	defer m.alone.Store(false)
	return m.lead(ctx, w)
}

func (m *manager) fill(ctx context.Context, caches knowledge) error {
	_, end := m.begin(ctx, "filling the caches", caches.Behind)
	defer end()
	return caches.Await(ctx)
}

// lead runs the loops until the context ends and the syncs under way have ended.
func (m *manager) lead(ctx context.Context, w workload) error {
	if err := m.insist(ctx, "bringing the caches up to date", w.caches.Behind, w.caches.CaughtUp); err != nil {
		return nil //nolint:nilerr // it only fails when the context ends
	}
	m.log.Info("loops start")
	group, running := errgroup.WithContext(ctx)
	for _, l := range w.loops {
		group.Go(func() error { return l.Run(running) })
	}
	err := group.Wait()
	if err == nil && ctx.Err() == nil {
		return errLoopEnded
	}
	if err == nil {
		m.log.Info("loops have ended")
	}
	return err
}

var errLoopEnded = errors.New("the loops ended although nobody asked them to")

// closeEvents has what the loops recorded last written.
func (m *manager) closeEvents(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	m.events.Close(ctx)
}
