// Package httpserver serves a program's health, readiness, metrics and, optionally, profiles.
package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"
)

// Timeouts that close connections of slow or broken clients.
const (
	headerTimeout   = 10 * time.Second
	idleTimeout     = 2 * time.Minute
	writeTimeout    = 30 * time.Second // a profile extends it by its own time
	shutdownTimeout = 2 * time.Second
)

// Options say what is served.
type Options struct {
	Network string // of Address: "unix", or "" for TCP
	Address string // host:port, where no host is all addresses; or the path of a socket
	Healthy []Check
	Ready   []Check
	Metrics prometheus.Gatherer
	Pprof   bool // adds /debug/pprof, for clients on the loopback
	Log     *slog.Logger
}

// Server serves from Serve on.
type Server struct {
	options  Options
	listener net.Listener
}

// Listen binds the address, so that the caller sees at once if it is in use.
func Listen(ctx context.Context, o Options) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, cmp.Or(o.Network, "tcp"), o.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for HTTP: %w", err)
	}
	return &Server{options: o, listener: Limit(listener, func() int { return MaxConnections })}, nil
}

// Serve serves until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler:           Handler(s.options),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.options.Log.Handler(), slog.LevelDebug), // about clients that disconnect
	}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		shutdown(ctx, server)
	})()
	if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP: %w", err)
	}
	<-stopped
	return nil
}

// shutdown waits for requests, but not for a profile that takes minutes.
func shutdown(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // interrupts the remaining requests; the program ends anyway
	}
}

// Handler returns the handler of all paths.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", report(o.Healthy))
	mux.Handle("GET /readyz", report(o.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(shared(o.Metrics), promhttp.HandlerOpts{
		// One broken metric must not hide the others.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(o.Log.Handler(), slog.LevelError),
		// Each client holds all series until it has read them.
		MaxRequestsInFlight: 3,
	}))
	if o.Pprof {
		mux.Handle("/debug/pprof/", local(pprof.Index))
		mux.Handle("/debug/pprof/cmdline", local(pprof.Cmdline))
		mux.Handle("/debug/pprof/profile", local(pprof.Profile))
		mux.Handle("/debug/pprof/symbol", local(pprof.Symbol))
		mux.Handle("/debug/pprof/trace", local(pprof.Trace))
	}
	return mux
}

// shared gathers once for the clients that ask at the same time: there can be a hundred thousand series.
func shared(metrics prometheus.Gatherer) prometheus.Gatherer {
	var running singleflight.Group
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		gathered, err, _ := running.Do("", func() (any, error) { return metrics.Gather() })
		families, _ := gathered.([]*dto.MetricFamily)
		return families, err
	})
}

// local refuses clients that are not on the loopback. There is no authentication, metrics may be for a
// whole network, and a profile shows memory and takes as much processor time as the client requests.
func local(handler http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !client.Addr().Unmap().IsLoopback() {
			http.Error(w, "profiles are for clients on the loopback: use kubectl port-forward, "+
				"and with the node agent --http-address=127.0.0.1:20488", http.StatusForbidden)
			return
		}
		handler(w, r)
	})
}

// Check is one check of health or readiness.
type Check struct {
	Name string
	// Func must not block: a probe has a second. Its error is for users.
	Func func() error
}

// report responds 200 if all checks pass, else 503. It lists them in both cases, as Kubernetes' own
// programs do, because kubelet's event and an administrator's curl show the response.
func report(checks []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var lines strings.Builder
		code, summary := http.StatusOK, "ok"
		for _, check := range checks {
			if err := check.Func(); err != nil {
				code, summary = http.StatusServiceUnavailable, "not ok"
				fmt.Fprintf(&lines, "[-] %s: %v\n", check.Name, err)
				continue
			}
			fmt.Fprintf(&lines, "[+] %s\n", check.Name)
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintf(w, "%s%s\n", &lines, summary)
	})
}

// Limits of a server that everybody in a cluster can reach.
const (
	// MaxHeaderBytes is enough for the token of a pod.
	MaxHeaderBytes = 8 << 10
	// MaxConnections is far more than probes and scrapes need.
	MaxConnections = 128
)

// Limit bounds the open connections of a listener, by a number that may change. Where there are more, the client address with most of them
// loses its oldest: a client cannot keep others from connecting, as it could where new ones wait.
func Limit(listener net.Listener, most func() int) net.Listener {
	return &limited{Listener: listener, most: most}
}

type limited struct {
	net.Listener
	most func() int

	mu   sync.Mutex
	open []*connection // guarded by mu; oldest first
}

type connection struct {
	net.Conn
	limited *limited
	client  string
}

func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	client, _, _ := net.SplitHostPort(accepted.RemoteAddr().String()) // "" for all clients of a socket
	c := &connection{Conn: accepted, limited: l, client: client}
	if extra := l.add(c); extra != nil {
		_ = extra.Close()
	}
	return c, nil
}

// add returns the connection that is too many, nil for none.
func (l *limited) add(c *connection) (extra *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
	if len(l.open) <= l.most() {
		return nil
	}
	counts, most := map[string]int{}, c.client
	for _, open := range l.open {
		counts[open.client]++
	}
	for client, count := range counts {
		if count > counts[most] {
			most = client
		}
	}
	return l.open[slices.IndexFunc(l.open, func(open *connection) bool { return open.client == most })]
}

func (c *connection) Close() error {
	c.limited.mu.Lock()
	c.limited.open = slices.DeleteFunc(c.limited.open, func(open *connection) bool { return open == c })
	c.limited.mu.Unlock()
	return c.Conn.Close()
}
