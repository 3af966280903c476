// Package agent keeps the tunnels of one node as the target table wants them. It writes their
// specifications, which the supervisor runs; keeps copies of the supervisor's sockets; probes them; leads those whose server is lost to
// another; and tells about all of it.
//
// The supervisor and its tunnels do not need the agent: it may die at any line, and go on from
// what it kept on disk, with or without an apiserver.
package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/httpserver"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/tunnel/certificates"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/tunnel/fdstore"
	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// Options are what an agent works with.
type Options struct {
	Client    kubernetes.Interface
	Namespace string // of the table
	Node      string // its own
	Dir       confdir.Dir
	// Routing says how tunnels are made. What follows from region and folder is filled in.
	Routing routing.Settings
	Region  string // the administrator's; "" to find out
	// Metadata is where the instance says it is. It may wait for the network.
	Metadata func(context.Context) (routing.Place, error)
	// Credentials asks which IAM identity the node has, when a tunnel must prove it.
	Credentials func(ctx context.Context, region string) (certificates.Credentials, error)
	Dialer      probe.Dialer
	// Clients says who is connected to loopback ports, besides the agent.
	Clients func() (sockets.Uses, error)
	// Status reads what the supervisor says; it must not wait.
	Status        func() (supervise.Status, error)
	ProbeInterval time.Duration
	// HealthWait is how long a starting agent waits for its tunnels to be healthy before it is
	// ready all the same.
	HealthWait         time.Duration
	RemoveStartupTaint bool
	ProcSys            fs.FS              // the node's /proc/sys; nil to leave its port settings alone
	HTTP               httpserver.Options // its checks are the agent's
	Events             record.EventRecorder
	Metrics            prometheus.Registerer
	Log                *slog.Logger
}

// Agent is that of one node.
type Agent struct {
	options      Options
	inbox        *inbox
	results      chan probe.Result
	fleet        *probe.Fleet
	teller       *tell.Teller
	metrics      *metrics
	certificates *certificates.Renewer

	view     atomic.Pointer[view] // nil before the first look; what others may read
	lastLook atomic.Int64         // Unix nanoseconds
	sibling  atomic.Bool          // another agent has the HTTP address
	started  time.Time

	// What follows belongs to the loop.

	table    ports.Table
	hasTable bool
	// unknown are targets that the table has, but so that nothing was ever read of them.
	unknown  []string
	problem  tableProblem
	place    routing.Place
	status   supervise.Status
	heard    time.Time // the UpdatedAt of the latest status
	heardAt  time.Time // when that was first seen, by the clock of this process; or when it started
	memories map[string]routing.Memory
	plan     routing.Plan
	planned  bool // there is a plan, be it an empty one
	tunnels  map[string]*tunnelState
	written  map[string][]byte // what the files hold
	kept     []byte            // what the memory's file holds
	lastErr  string            // of the latest apply

	usesAt      time.Time // when the kernel was asked who uses tunnels
	usesUnknown bool      // and did not tell
	ephemeral   ephemeralPorts

	said, saying map[string]string // what is wrong, at the look before and at this one
}

// New makes an agent that has done nothing yet.
func New(o Options) (*Agent, error) {
	a := &Agent{
		options: o, inbox: newInbox(), teller: tell.New(o.Events), started: time.Now(),
		results: make(chan probe.Result), memories: map[string]routing.Memory{},
		tunnels: map[string]*tunnelState{}, written: map[string][]byte{},
	}
	a.heardAt = a.started
	a.fleet = probe.NewFleet(o.Dialer, o.ProbeInterval, a.take)
	a.certificates = certificates.New(certificates.Options{
		Dir: o.Dir, Node: o.Node, Credentials: o.Credentials, Log: o.Log,
		Changed: func() { a.inbox.put(func(*news) {}) },
	})
	a.metrics = newMetrics(a.view.Load)
	for _, collector := range a.metrics.collectors() {
		if err := o.Metrics.Register(collector); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Run works until the context ends. Nothing that it could not do ends it.
func (a *Agent) Run(ctx context.Context) error {
	a.load()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.watch(ctx) })
	group.Go(func() error { a.findPlace(ctx); return nil })
	group.Go(func() error { a.certificates.Run(ctx); return nil })
	group.Go(func() error { a.loop(ctx); return nil })
	group.Go(func() error { return a.serveSocket(ctx) })
	group.Go(func() error { return fdstore.Serve(ctx, a.options.Dir.StoreSocket(), a.options.Log) })
	group.Go(func() error { a.serveAddress(ctx); return nil })
	if a.options.RemoveStartupTaint {
		group.Go(func() error { a.removeTaint(ctx); return nil })
	}
	return group.Wait()
}

// take hands a result to the loop.
func (a *Agent) take(ctx context.Context, result probe.Result) {
	select {
	case a.results <- result:
	case <-ctx.Done():
	}
}
