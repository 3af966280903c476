package agent_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// oneTunnel is a pod that serves fs-1.
func oneTunnel(t *testing.T) (p *pod, local netip.AddrPort, near, far *mountTarget) {
	t.Helper()
	return oneTunnelWith(t, func(*agent.Options) {})
}

func oneTunnelWith(t *testing.T, change func(*agent.Options)) (p *pod, local netip.AddrPort, near, far *mountTarget) {
	t.Helper()
	c := newCluster(t)
	near, far = c.mountTarget("127.1.0.1"), c.mountTarget("127.1.0.2")
	local = stunneltest.FreePort(t, "127.0.0.1")
	p = c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(func(o *agent.Options) { o.ProbeInterval = time.Second; change(o) })
	c.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "127.1.0.2")}))
	p.until("fs-1 is up", func() bool { return p.up() && p.ready() })
	return p, local, near, far
}

// up reports whether the tunnel to fs-1 is up, by its metric.
func (p *pod) up() bool {
	value, ok := p.metric("efs_stunnel_node_tunnel_up", "fs-1")
	return ok && value == 1
}

func TestTargetsOfTheTableAreServed(t *testing.T) {
	p, local, _, _ := oneTunnelWith(t, func(o *agent.Options) {
		o.Clients = func() (sockets.ClientCounts, error) { return nil, nil } // else that of the agent itself counts
	})
	if err := p.serves(local); err != nil {
		t.Errorf("through the tunnel: %v", err)
	}
	p.until("it is ready", func() bool { return p.agent.Ready() == nil })
	if zone, ok := p.metric("efs_stunnel_node_tunnel_active_info", "fs-1", "127.1.0.1", nearZone); !ok || zone != 1 {
		t.Error("the tunnel does not use the mount target of the node's zone")
	}
	p.until("the metrics report its memory", func() bool {
		memory, _ := p.metric("efs_stunnel_node_tunnel_memory_bytes", "fs-1")
		limit, _ := p.metric("efs_stunnel_node_tunnel_memory_limit_bytes")
		return 0 < memory && memory < limit && limit == supervise.DefaultMemoryLimit
	})
	second := stunneltest.FreePort(t, "127.0.0.1")
	begin := time.Now()
	p.publish(tableOf(map[string]ports.Target{
		"fs-1": target(int(local.Port()), "127.1.0.1", "127.1.0.2"),
		"fs-2": target(int(second.Port()), "127.1.0.2", ""),
	}))
	p.until("the second tunnel answers", func() bool { return p.answers(second) == nil })
	t.Logf("from the ConfigMap to a tunnel that answers: %s", time.Since(begin))
	p.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "127.1.0.2")}))
	p.until("its metrics are gone", func() bool {
		_, ok := p.metric("efs_stunnel_node_tunnel_up", "fs-2")
		return !ok
	})
	if err := p.serves(second); err != nil {
		t.Errorf("the tunnel ended when its target left the table: %v", err)
	}
}

func TestUsedTunnelOfAMissingTargetIsReportedAndFailsOver(t *testing.T) {
	p, local, near, _ := oneTunnel(t)
	conn := p.hold(local)
	p.publish(tableOf(map[string]ports.Target{"fs-2": target(int(stunneltest.FreePort(t, "127.0.0.1").Port()), "127.1.0.2", "")}))
	if message := p.event(wellknown.EventTargetUnusable); !strings.Contains(message, "fs-1") || !strings.Contains(message, "Missing") {
		t.Errorf("got %q, want the missing target", message)
	}
	missing := func() bool {
		_, ok := p.metric("efs_stunnel_node_target_unusable", "fs-1", "Missing")
		return ok
	}
	p.until("the metric reports it", missing)
	if err := p.call(conn); err != nil {
		t.Errorf("the connection was cut: %v", err)
	}
	p.until("it is probed", p.up)
	near.silence()
	if message := p.event(wellknown.EventTunnelMoved); !strings.Contains(message, "127.1.0.2") {
		t.Errorf("got %q, want the other mount target", message)
	}
	p.until("it answers again", func() bool { return p.answers(local) == nil })
}

func TestTunnelFailsOverFromSilentMountTarget(t *testing.T) {
	p, local, near, _ := oneTunnel(t)
	begin := time.Now()
	near.silence()
	if message := p.event(wellknown.EventTunnelMoved); !strings.Contains(message, "127.1.0.2") {
		t.Errorf("got %q, want the other mount target", message)
	}
	detected := time.Since(begin)
	p.until("it answers again", func() bool { return p.answers(local) == nil })
	t.Logf("detected after %s, served from another zone after %s", detected, time.Since(begin))
	p.until("the metric reports another zone", func() bool {
		far, _ := p.metric("efs_stunnel_node_tunnel_other_zone", "fs-1")
		return far == 1
	})
}

func TestTunnelInUseIsProbedMoreOften(t *testing.T) {
	p, local, near, _ := oneTunnel(t)
	p.endAgent()
	p.startAgent(func(o *agent.Options) { o.ProbeInterval = time.Hour })
	p.hold(local)
	rounds := p.probes("success")
	p.until("it is probed although the interval is long", func() bool { return p.probes("success") > rounds+1 })
	begin := time.Now()
	near.silence()
	p.event(wellknown.EventTunnelMoved)
	t.Logf("detected after %s", time.Since(begin))
	p.until("it answers again", func() bool { return p.answers(local) == nil })
	t.Logf("served by another mount target after %s", time.Since(begin))
}

// The agent's connection uses the mount target in the zone, which answers. The client's began while
// that one refused, and uses the other.
func TestOldConnectionToSilentMountTargetIsCut(t *testing.T) {
	p, local, near, far := oneTunnel(t)
	near.refuse()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", local.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := nfsnull.Call(t.Context(), conn, 1); err != nil {
		t.Fatal(err)
	}
	near.listen()
	p.until("the metric reports another zone", func() bool {
		far, _ := p.metric("efs_stunnel_node_tunnel_other_zone", "fs-1")
		return far == 1
	})
	begin := time.Now()
	far.silence()
	if err := conn.SetReadDeadline(begin.Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
	t.Logf("cut after %s", time.Since(begin))
	p.until("it answers", func() bool { return p.answers(local) == nil })
	p.until("the metric reports no other zone", func() bool {
		far, _ := p.metric("efs_stunnel_node_tunnel_other_zone", "fs-1")
		return far == 0
	})
}

func TestConnectionToRemovedMountTargetIsCutWhenSilent(t *testing.T) {
	p, local, near, _ := oneTunnel(t)
	conn := p.hold(local)
	p.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.2", "")}))
	p.until("stunnel has reloaded its configuration", func() bool {
		reloads, _ := p.metric("efs_stunnel_node_tunnel_reloads_total", "fs-1")
		return reloads == 1
	})
	p.endAgent() // which closes its own connection to the removed mount target
	p.startAgent(func(o *agent.Options) { o.ProbeInterval = time.Second })
	p.until("it is up", func() bool { return p.up() && p.ready() })
	if err := p.call(conn); err != nil {
		t.Fatalf("the connection was cut while its mount target served: %v", err)
	}
	near.silence()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
	p.event(wellknown.EventTunnelRestarted)
	p.until("it answers", func() bool { return p.answers(local) == nil })
}

func TestTunnelFailsOverFromMountTargetWithBadCertificate(t *testing.T) {
	c := newCluster(t)
	c.serve("127.1.0.1", func(config *tls.Config) {
		config.Certificates = []tls.Certificate{c.authority.Valid(t, "fs-2.efs.us-east-1.amazonaws.com")}
	})
	c.mountTarget("127.1.0.2")
	local := stunneltest.FreePort(t, "127.0.0.1")
	c.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "127.1.0.2")}))
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(nil)
	if message := p.event(wellknown.EventTunnelMoved); !strings.Contains(message, "127.1.0.2") {
		t.Errorf("got %q, want the mount target with the valid certificate", message)
	}
	p.until("it answers", func() bool { return p.answers(local) == nil })
}

func TestNoRestartWhileAllMountTargetsAreSilent(t *testing.T) {
	p, local, near, far := oneTunnel(t)
	near.silence()
	far.silence()
	// Events are limited for each tunnel, by this annotation.
	text := p.event(wellknown.EventTunnelUnhealthy)
	for _, part := range []string{wellknown.AnnotationTunnel + ":fs-1", "(Timeout)"} {
		if !strings.Contains(text, part) {
			t.Errorf("the event lacks %s: %q", part, text)
		}
	}
	rounds := p.probes("Timeout")
	p.until("three more rounds have passed", func() bool { return p.probes("Timeout") >= rounds+3 })
	if restarts, _ := p.metric("efs_stunnel_node_tunnel_restarts_total", "fs-1"); restarts != 0 {
		t.Errorf("%v restarts, although no mount target answers", restarts)
	}
	if err := p.agent.Ready(); err != nil {
		t.Errorf("a server's outage makes the agent unready: %v", err)
	}
	near.unsilence()
	p.until("it answers again", func() bool { return p.answers(local) == nil })
}

func (p *pod) probes(result string) uint64 {
	families, err := p.registry.Gather()
	if err != nil {
		p.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "efs_stunnel_node_probe_duration_seconds" && m.GetLabel()[0].GetValue() == result {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}

func TestTunnelStaysWithoutUsableTable(t *testing.T) {
	p, local, _, _ := oneTunnel(t)
	p.publishText("efs_stunnel_targets: [")
	p.event(wellknown.EventTableUnreadable)
	p.publishText("efs_stunnel_targets: {fs-1: {stunnel_port: nonsense}}")
	p.event(wellknown.EventTargetUnusable)
	if err := p.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), wellknown.TargetsConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.event(wellknown.EventTableMissing)
	if err := p.serves(local); err != nil {
		t.Errorf("the tunnel is gone: %v", err)
	}
	if usable, _ := p.metric("efs_stunnel_node_table_usable"); usable != 0 {
		t.Error("the metric says that the table is usable")
	}
	if err := p.agent.Ready(); err != nil {
		t.Errorf("not ready, although all is served: %v", err)
	}
}

func TestAgentRestartWithoutAPIChangesNoTunnel(t *testing.T) {
	p, local, near, _ := oneTunnel(t)
	near.silence()
	p.event(wellknown.EventTunnelMoved)
	p.until("it answers through the other", func() bool { return p.answers(local) == nil })
	p.until("it is up", func() bool { return p.up() && p.ready() })
	p.endAgent()
	before, err := supervisedTunnel(p)
	if err != nil {
		t.Fatal(err)
	}
	conn := p.hold(local)
	p.client = fake.NewClientset() // without table and node
	p.startAgent(nil)
	p.until("it is ready", func() bool { return p.agent.Ready() == nil && p.up() })
	after, err := supervisedTunnel(p)
	if err != nil {
		t.Fatal(err)
	}
	if before.PID != after.PID || before.Generation != after.Generation || before.Reloads != after.Reloads {
		t.Errorf("the tunnel was changed: before %+v, after %+v", before, after)
	}
	if err := p.call(conn); err != nil {
		t.Errorf("an open connection was cut: %v", err)
	}
}

func TestCAFileMissingInSupervisorsContainerIsReported(t *testing.T) {
	c := newCluster(t)
	c.mountTarget("127.1.0.1")
	local := stunneltest.FreePort(t, "127.0.0.1")
	c.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "")}))
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(func(o *agent.Options) { o.Routing.CAFile = "/etc/not/mounted/ca.crt" })
	want := "CAfile /etc/not/mounted/ca.crt: no such file in the supervisor's container"
	if message := p.event(wellknown.EventConfigurationRefused); !strings.Contains(message, want) {
		t.Errorf("got %q, want %q", message, want)
	}
	if err := p.agent.Ready(); err == nil {
		t.Error("ready, although the only tunnel cannot run")
	}
}

func TestTunnelTakesItsPortWhenAnotherProcessFreesIt(t *testing.T) {
	c := newCluster(t)
	c.mountTarget("127.1.0.1")
	foreign, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := netip.MustParseAddrPort(foreign.Addr().String())
	free := stunneltest.FreePort(t, "127.0.0.1")
	c.publish(tableOf(map[string]ports.Target{
		"fs-1": target(int(taken.Port()), "127.1.0.1", ""),
		"fs-2": target(int(free.Port()), "127.1.0.1", ""),
	}))
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(nil)
	if message := p.event(wellknown.EventPortTaken); !strings.Contains(message, taken.String()[len("127.0.0.1:"):]) {
		t.Errorf("got %q, want the port %d", message, taken.Port())
	}
	p.until("the other answers", func() bool { return p.answers(free) == nil })
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	p.until("it takes its port when that is free", func() bool { return p.answers(taken) == nil })
}
