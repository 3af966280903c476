package agent_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// never fails if the condition becomes true within two seconds.
func (p *pod) never(what string, happens func() bool) {
	p.Helper()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		if happens() {
			p.Fatal(what)
		}
	}
}

func (p *pod) ready() bool { return p.agent.Ready() == nil }

// TestNotReadyBeforeTheFirstPlan has table and supervisor before the node's location is known. If the
// pod were ready, the old pod would be deleted, and the startup taint removed.
func TestNotReadyBeforeTheFirstPlan(t *testing.T) {
	c := newCluster(t)
	c.client = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	c.setTaints(taints(wellknown.TaintAgentNotReady))
	c.mountTarget("127.1.0.1")
	local := stunneltest.FreePort(t, "127.0.0.1")
	c.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "")}))
	p, metadataFails := c.pod(stunneltest.FreePort(t, "127.0.0.1").String()), make(chan struct{})
	p.startSupervisor()
	p.startAgent(func(o *agent.Options) {
		o.RemoveStartupTaint = true
		o.Metadata = func(ctx context.Context) (routing.Location, error) {
			select {
			case <-metadataFails:
			case <-ctx.Done():
			}
			return routing.Location{}, errors.New("not on EC2")
		}
	})
	p.until("the table is decoded", func() bool {
		usable, _ := p.metric("efs_stunnel_node_table_usable")
		return usable == 1
	})
	p.never("ready before the tunnels were planned", p.ready)
	if len(c.taints()) != 1 {
		t.Error("the startup taint was removed before any tunnel serves")
	}
	close(metadataFails)
	p.until("it is ready", p.ready)
	if !p.up() {
		t.Error("ready before its tunnel has answered")
	}
	p.until("the taint is gone", func() bool { return len(c.taints()) == 0 })
}

// Another process has the port, so both pods have the tunnel on standby.
func TestPortOfAnotherProcessDoesNotStopRollout(t *testing.T) {
	c := newCluster(t)
	c.mountTarget("127.1.0.1")
	foreign, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken, free := netip.MustParseAddrPort(foreign.Addr().String()), stunneltest.FreePort(t, "127.0.0.1")
	c.publish(tableOf(map[string]ports.Target{
		"fs-1": target(int(taken.Port()), "127.1.0.1", ""),
		"fs-2": target(int(free.Port()), "127.1.0.1", ""),
	}))
	first := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	first.startSupervisor()
	first.startAgent(nil)
	first.until("the old pod is ready", first.ready)
	second := c.pod(first.http)
	second.startSupervisor()
	second.startAgent(func(o *agent.Options) { o.HealthWait = 5 * time.Second })
	second.until("the new pod is ready", second.ready)
	if err := second.serves(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), free.Port())); err != nil {
		t.Errorf("ready before the other tunnel has answered: %v", err)
	}
	first.endAgent()
	first.endSupervisor()
	second.until("the new pod serves one tunnel and has the other on standby", func() bool {
		return second.answers(free) == nil && second.supervised("fs-1").Accept.String() == "127.0.0.2:"+strconv.Itoa(int(taken.Port()))
	})
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	second.until("it takes the port when the port is free", func() bool { return second.answers(taken) == nil })
}

// Only the old pod has an earlier version of the target.
func TestUnreadableTargetStopsRollout(t *testing.T) {
	c := newCluster(t)
	c.mountTarget("127.1.0.1")
	one, two := stunneltest.FreePort(t, "127.0.0.1"), stunneltest.FreePort(t, "127.0.0.1")
	good := string(ports.Encode(tableOf(map[string]ports.Target{
		"fs-1": target(int(one.Port()), "127.1.0.1", ""),
		"fs-2": target(int(two.Port()), "127.1.0.1", ""),
	})))
	c.publishText(good)
	first := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	first.startSupervisor()
	first.startAgent(nil)
	first.until("the old pod is ready", first.ready)
	c.publishText(strings.Replace(good, strconv.Itoa(int(two.Port())), "nonsense", 1))
	first.event(wellknown.EventTargetUnusable)
	if err := first.agent.Ready(); err != nil {
		t.Errorf("the old pod serves all tunnels, and is not ready: %v", err)
	}
	second := c.pod(first.http)
	second.startSupervisor()
	second.startAgent(func(o *agent.Options) { o.HealthWait = 0 })
	second.until("the new pod serves the good target", func() bool {
		up, _ := second.metric("efs_stunnel_node_tunnel_up", "fs-1")
		return up == 1
	})
	second.never("ready without the unreadable target", second.ready)
	if err := second.agent.Ready(); !strings.Contains(err.Error(), `"fs-2"`) {
		t.Errorf("got %v, want the name of the target", err)
	}
	second.endAgent()
	client := second.client
	second.client = fake.NewClientset() // without table and node
	second.startAgent(func(o *agent.Options) { o.HealthWait = 0 })
	second.never("ready after a restart, with the stored table", second.ready)
	second.endAgent()
	second.client = client
	second.startAgent(nil)
	c.publishText(good)
	second.until("the new pod is ready when the table is correct", second.ready)
}
