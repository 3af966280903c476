package agent_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
	"gnuthought.com/efs-stunnel/test/support/loggingtest"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// patience is long because the machine may be busy.
const patience = 60 * time.Second

const (
	nodeName  = "node-1"
	hostName  = "fs-1.efs.us-east-1.amazonaws.com"
	nearZone  = "us-east-1a"
	farZone   = "us-east-1b"
	namespace = "efs-stunnel"
)

// cluster is what the nodes of a test share.
type cluster struct {
	*testing.T
	client    *fake.Clientset
	authority *stunneltest.Authority
	program   string
	port      uint16 // of all mount targets
	pods      []*pod // all of them, on one node
	version   int    // of the table
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
		corev1.LabelTopologyZone: nearZone,
	}}}
	return &cluster{
		T: t, client: fake.NewClientset(node), authority: stunneltest.NewAuthority(t),
		program: stunneltest.Path(t), port: stunneltest.FreePort(t, "127.1.0.1").Port(),
	}
}

// target has a mount target in the node's zone, and one in another zone unless far is empty.
func target(port int, near, far string) ports.Target {
	t := ports.Target{Port: port, DNSName: hostName, AddressByZone: map[string]netip.Addr{nearZone: netip.MustParseAddr(near)}}
	if far != "" {
		t.AddressByZone[farZone] = netip.MustParseAddr(far)
	}
	return t
}

func tableOf(targets map[string]ports.Target) ports.Table { return ports.Table{Targets: targets} }

// mountTarget is an NFS server behind TLS that answers NULL calls unless it is silenced.
type mountTarget struct {
	*cluster
	address  netip.AddrPort
	config   *tls.Config
	listener net.Listener
	mu       sync.Mutex
	silent   bool          // guarded by mu
	sends    chan struct{} // guarded by mu; closed unless silent
	conns    []net.Conn    // guarded by mu
}

func (c *cluster) mountTarget(address string) *mountTarget {
	c.Helper()
	return c.serve(address, func(*tls.Config) {})
}

func (c *cluster) serve(address string, change func(*tls.Config)) *mountTarget {
	c.Helper()
	sends := make(chan struct{})
	close(sends)
	m := &mountTarget{
		cluster: c, address: netip.AddrPortFrom(netip.MustParseAddr(address), c.port), sends: sends,
		config: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c.authority.Valid(c.T, hostName)}},
	}
	change(m.config)
	m.listen()
	c.Cleanup(m.close)
	return m
}

func (m *mountTarget) listen() {
	m.Helper()
	listener, err := (&net.ListenConfig{}).Listen(m.Context(), "tcp", m.address.String())
	if err != nil {
		m.Fatal(err)
	}
	m.listener = listener
	go m.accept(listener)
}

// refuse refuses new connections; open ones stay.
func (m *mountTarget) refuse() { _ = m.listener.Close() } // it may be closed already

func (m *mountTarget) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		m.mu.Lock()
		m.conns = append(m.conns, conn)
		m.mu.Unlock()
		go m.serve(tls.Server(&gated{conn, m}, m.config))
	}
}

// gated sends nothing while its server is silent: neither handshakes nor replies.
type gated struct {
	net.Conn
	server *mountTarget
}

func (g *gated) Write(p []byte) (int, error) {
	g.server.mu.Lock()
	sends := g.server.sends
	g.server.mu.Unlock()
	<-sends
	return g.Conn.Write(p)
}

// serve replies to each call with success.
func (m *mountTarget) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var mark [4]byte
		if _, err := io.ReadFull(conn, mark[:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint32(mark[:])&0xffff)
		if _, err := io.ReadFull(conn, message); err != nil {
			return
		}
		reply := append([]byte{0x80, 0, 0, 24}, message[:4]...)
		reply = append(reply, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

func (m *mountTarget) silence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.silent {
		m.silent, m.sends = true, make(chan struct{})
	}
}

func (m *mountTarget) unsilence() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent {
		m.silent = false
		close(m.sends)
	}
}

func (m *mountTarget) close() {
	m.unsilence()
	m.refuse()
	m.cut()
}

// pod is an agent and its supervisor.
type pod struct {
	*cluster
	dir      confdir.Dir
	agent    *agent.Agent
	events   *record.FakeRecorder
	registry *prometheus.Registry
	log      *loggingtest.Buffer
	http     string

	endAgent, endSupervisor func()
}

// pod returns a pod that is not started. Two on the same node share the HTTP address.
func (c *cluster) pod(http string) *pod {
	c.Helper()
	dir, err := confdir.Open(filepath.Join(c.TempDir(), "s.conf")) // sockets' paths are short
	if err != nil {
		c.Fatal(err)
	}
	p := &pod{cluster: c, dir: dir, log: &loggingtest.Buffer{}, http: http}
	c.pods = append(c.pods, p)
	c.Cleanup(func() {
		if c.Failed() {
			c.Log(p.log.String())
		}
	})
	return p
}

func (p *pod) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func (p *pod) startSupervisor() {
	p.endSupervisor = p.background(func(ctx context.Context) error {
		return supervise.Run(ctx, supervise.Options{
			Prefix: p.dir.Prefix(), Stunnel: p.program, MemoryLimit: supervise.DefaultMemoryLimit,
			Launcher: []string{"/usr/bin/env", launchVariable + "=yes", os.Args[0]},
			Clients:  clients, Listening: new(sockets.Lister).Listening,
			DrainTimeout: patience, StopGrace: 5 * time.Second, Log: p.logger().With("controller", "supervisor"),
		})
	})
}

func (p *pod) startAgent(change func(*agent.Options)) {
	p.Helper()
	p.events, p.registry = record.NewFakeRecorder(1000), prometheus.NewRegistry()
	o := agent.Options{
		Client: p.client, TableMetadata: agent.FakeMetadata(p.client), ViewWait: time.Hour, Namespace: namespace, Node: nodeName, Dir: p.dir,
		Routing:       routing.Settings{CAFile: p.authority.File, ServerPort: p.port},
		Metadata:      func(context.Context) (routing.Location, error) { return routing.Location{}, errors.New("not on EC2") },
		HasRoute:      everywhere,
		Dialer:        &probe.Network{CAFile: p.authority.File},
		Clients:       clients,
		Listening:     p.listening,
		Status:        func() (tunnelspec.Status, error) { return supervise.ReadStatus(p.dir) },
		ProbeInterval: 10 * time.Second, // a pause of the machine in the middle of a probe looks like a tunnel that is stuck
		HealthWait:    wellknown.FirstHealthWait,
		HTTP:          httpserver.Options{Address: p.http, Metrics: p.registry, Log: p.logger()},
		Events:        p.events, Metrics: p.registry, Log: p.logger(),
	}
	if change != nil {
		change(&o)
	}
	p.agent = agent.New(o)
	p.endAgent = p.background(p.agent.Run)
}

// listening lists the sockets of this test's supervisors only: in tests those of other programs have the same user.
func (c *cluster) listening() (sockets.Listeners, error) {
	all, err := new(sockets.Lister).ListeningAs(os.Getuid())
	found := sockets.Listeners{}
	for _, p := range c.pods {
		status, _ := supervise.ReadStatus(p.dir) // it may not run yet
		for _, t := range status.Tunnels {
			found[t.Accept] = all[t.Accept]
		}
	}
	return found, err
}

// background runs a function until the test or the returned function ends it.
func (p *pod) background(run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(p.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				p.Errorf("ended with %v", err)
			}
		case <-time.After(patience):
			p.Error("does not end")
		}
	})
	p.Cleanup(end)
	return end
}

// event waits for an event with the reason, and returns its text.
func (p *pod) event(reason string) string {
	p.Helper()
	deadline := time.After(patience)
	for {
		select {
		case text := <-p.events.Events:
			if _, rest, _ := strings.Cut(text, " "); strings.HasPrefix(rest, reason+" ") {
				return text
			}
		case <-deadline:
			p.Fatalf("no event %s", reason)
		}
	}
}

// until polls until done returns true.
func (p *pod) until(what string, done func() bool) {
	p.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			p.Fatalf("not in time: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// answers does an NFS call through a local port with a short timeout, for callers that poll.
func (c *cluster) answers(address netip.AddrPort) error {
	return c.answersWithin(2*time.Second, address)
}

// serves is for callers that do not poll.
func (c *cluster) serves(address netip.AddrPort) error { return c.answersWithin(patience, address) }

func (c *cluster) answersWithin(limit time.Duration, address netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	conn, err := (&probe.Network{}).Tunnel(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return nfsnull.Call(ctx, conn, 1)
}

// metric returns the value of the metric that has all the label values.
func (p *pod) metric(name string, labels ...string) (float64, bool) {
	p.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		p.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			found := 0
			for _, label := range m.GetLabel() {
				for _, want := range labels {
					if label.GetValue() == want {
						found++
					}
				}
			}
			if found == len(labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), true
			}
		}
	}
	return 0, false
}
