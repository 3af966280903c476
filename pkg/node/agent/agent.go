// Package agent reconciles the tunnels of one node with the target table. It writes the tunnels'
// specifications, which the supervisor runs; stores copies of the supervisor's sockets; probes the
// tunnels; fails over those whose mount target does not answer; and reports all of it by events,
// metrics and log.
//
// The supervisor and its tunnels do not need the agent: it may end at any line, and continues from
// what it stored in files, with or without an apiserver.
package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/certificates"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/fdstore"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// Options are the dependencies and settings of an Agent.
type Options struct {
	Client kubernetes.Interface
	// TableMetadata watches the metadata of the table.
	TableMetadata metadata.Interface
	ViewWait      time.Duration // how long the table's view may be late, and up to twice that
	Namespace     string        // of the table
	Node          string        // its own
	Dir           confdir.Dir
	// Routing are the settings of all tunnels. The agent sets those that depend on region and folder.
	Routing routing.Settings
	Region  string // as configured; "" for the node's own
	// Metadata gets the node's location from the instance metadata service. It may use the network.
	Metadata func(context.Context) (routing.Location, error)
	// HasRoute reports whether the node has a route to any of the addresses. It must not block.
	HasRoute func(...netip.Addr) bool
	// Credentials gets the node's AWS credentials, for client certificates with IAM.
	Credentials func(ctx context.Context, region string) (clientcert.Credentials, error)
	// ClientCertificateDir has the client certificate for servers that are not EFS.
	ClientCertificateDir string
	Dialer               probe.Dialer
	Clients              func() (sockets.ClientCounts, error) // lists connections to loopback ports, except the agent's own
	// Listening lists the listening sockets of this process' user, which is that of all node agents.
	Listening func() (sockets.Listeners, error)
	// Status reads the supervisor's status file. It must not block.
	Status        func() (tunnelspec.Status, error)
	ProbeInterval time.Duration
	// HealthWait is how long a starting agent waits for its tunnels to be healthy. Then it is ready without
	// those that the pod before it does not serve, either.
	HealthWait         time.Duration
	RemoveStartupTaint bool
	ProcSys            fs.FS              // the node's /proc/sys; nil not to check its port settings
	HTTP               httpserver.Options // the agent sets the checks
	// WriteStatus writes the NodeTunnels of the node. The error is NotFound if the cluster does not have
	// the definition. nil writes none.
	WriteStatus func(context.Context, *corev1.Node, v1alpha1.NodeTunnelsStatus) error
	Events      record.EventRecorder
	Metrics     prometheus.Registerer
	Log         *slog.Logger
}

// Agent reconciles and probes the tunnels of one node.
type Agent struct {
	options      Options
	inbox        *inbox
	results      chan probe.Result
	probes       *probe.Manager
	metrics      *metrics
	certificates *certificates.Renewer

	snapshot atomic.Pointer[snapshot] // nil before the first sync; for readers outside of the loop
	lastSync atomic.Int64             // Unix nanoseconds
	wanted   atomic.Pointer[wanted]   // nil before the first; what WriteStatus is to write
	shown    loop.Wake                // requests to write it
	started  time.Time

	// Only the loop uses the fields below.

	observed
	routes          routing.Routes
	routesAt        time.Time                // when routes were last observed; zero after a change of the table
	statusUpdatedAt time.Time                // UpdatedAt of the latest status
	states          map[string]routing.State // by tunnel
	tunnels         map[string]*tunnelState
	written         map[string][]byte // contents of the specification files
	lastErr         loop.LastError    // of the latest apply

	clients        sockets.ClientCounts // that were last listed
	clientsAt      time.Time            // when that was
	clientsUnknown bool                 // they could not be listed
	ephemeral      ephemeralPorts
	roots          rootsFile

	predecessor  map[netip.AddrPort]otherPort // by address; empty once this pod was ready
	listeningErr loop.LastError               // of the latest listing of sockets

	held    status.Set // conditions
	showing showing
}

// New makes an agent and registers its metrics, which panics if the registry has them. It starts nothing.
func New(o Options) *Agent {
	a := &Agent{
		options: o, inbox: &inbox{wake: loop.NewWake()}, started: time.Now(),
		results: make(chan probe.Result), states: map[string]routing.State{},
		tunnels: map[string]*tunnelState{}, written: map[string][]byte{}, held: status.Set{Linger: healthyAfter},
		shown: loop.NewWake(),
	}
	a.statusSeenAt = a.started
	a.probes = probe.NewManager(o.Dialer, o.ProbeInterval, a.deliver)
	a.certificates = certificates.New(certificates.Options{
		Dir: o.Dir, Node: o.Node, Credentials: o.Credentials, Installed: o.ClientCertificateDir, Log: o.Log,
		Changed: func() { a.inbox.put(func(*inputs) {}) },
	})
	a.metrics = newMetrics(o.Metrics)
	o.Metrics.MustRegister(newTunnelMetrics(a.snapshot.Load))
	return a
}

// Run works until the context ends. It returns an error only if it cannot serve its sockets.
func (a *Agent) Run(ctx context.Context) error {
	a.load()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.watch(ctx) })
	group.Go(func() error { a.readMetadata(ctx); return nil })
	group.Go(func() error { a.certificates.Run(ctx); return nil })
	group.Go(func() error { a.loop(ctx); return nil })
	group.Go(func() error { a.writeStatus(ctx); return nil })
	group.Go(func() error { return a.serveSocket(ctx) })
	group.Go(func() error { return fdstore.Serve(ctx, a.options.Dir.StoreSocket(), a.options.Log) })
	group.Go(func() error { a.serveAddress(ctx); return nil })
	if a.options.RemoveStartupTaint {
		group.Go(func() error { a.removeTaint(ctx); return nil })
	}
	return group.Wait()
}

func (a *Agent) deliver(ctx context.Context, result probe.Result) {
	select {
	case a.results <- result:
	case <-ctx.Done():
	}
}

const httpRetry = 500 * time.Millisecond // between two attempts to listen on the HTTP address

// serveSocket answers kubelet's probes, which a program in the container forwards to the socket. All
// agents of a node share its addresses, so an HTTP probe would be answered by the old pod while the
// new one starts; the socket is in the pod's own folder.
func (a *Agent) serveSocket(ctx context.Context) error {
	path := a.options.Dir.Socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listening on the socket for probes: %w", err)
	}
	o := a.checks(a.options.HTTP)
	o.Network, o.Address = "unix", path
	server, err := httpserver.Listen(ctx, o)
	if err != nil {
		return fmt.Errorf("listening on the socket for probes: %w", err)
	}
	return server.Serve(ctx)
}

// serveAddress serves the HTTP address as soon as it can listen there: during an upgrade the old
// agent has it.
func (a *Agent) serveAddress(ctx context.Context) {
	var last loop.LastError
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		server, err := httpserver.Listen(ctx, a.checks(a.options.HTTP))
		if err == nil {
			a.options.Log.Info("serving the HTTP address")
			err = server.Serve(ctx)
		}
		if last.IsNew(err) && ctx.Err() == nil {
			a.options.Log.Warn("HTTP address cannot be served; retrying", "err", err)
		}
	}, httpRetry)
}

// storedState is what the agent stores in a file, besides the table.
type storedState struct {
	Location routing.Location         `json:"place"`
	Unknown  []string                 `json:"unknown,omitempty"`
	Tunnels  map[string]routing.State `json:"tunnels"`
}

// load reads what an earlier run stored. What cannot be read counts as missing: the tunnels'
// specifications have the rest.
func (a *Agent) load() {
	for _, load := range []func() error{a.loadState, a.loadSpecs, a.loadTable} {
		if err := load(); err != nil {
			a.options.Log.Warn("files of an earlier run cannot be used", "err", err)
		}
	}
}

func (a *Agent) loadState() error {
	text, err := a.options.Dir.State().Read()
	if err != nil || text == nil {
		return err
	}
	var n storedState
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("reading the stored state: %w", err)
	}
	a.location, a.unknown = n.Location, n.Unknown
	for name, state := range n.Tunnels {
		a.states[name] = state.Loaded(a.started)
	}
	return nil
}

// loadSpecs prefers a specification to the stored state, which is written before it.
func (a *Agent) loadSpecs() error {
	names, err := a.options.Dir.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := a.options.Dir.Spec(name).Read()
		if err != nil {
			return err
		}
		tunnel, err := tunnelspec.Decode(text)
		if err != nil {
			a.logOf(name).Warn("specification of an earlier run cannot be used", "err", err)
			continue
		}
		state, known := a.states[name]
		state.RestartSerial = max(state.RestartSerial, tunnel.Restart)
		if !known {
			state.Port = int(tunnel.Accept.Port())
			state.Standby = tunnel.Accept.Addr().String() == wellknown.StandbyAddress
		}
		a.states[name], a.written[name] = state, text
	}
	return nil
}

func (a *Agent) loadTable() error {
	text, err := a.options.Dir.Table().Read()
	if err != nil || text == nil {
		return err
	}
	table, _, err := routing.ReadTable(text, ports.Table{})
	if err != nil {
		return fmt.Errorf("reading the stored table: %w", err)
	}
	a.table, a.hasTable = table, true
	a.options.Log.Info("using the table of an earlier run until the apiserver answers")
	return nil
}

func (a *Agent) save() error {
	text, err := json.Marshal(storedState{a.location, a.unknown, a.states})
	if err != nil {
		return fmt.Errorf("storing the state: %w", err)
	}
	return a.options.Dir.State().Write(text)
}
