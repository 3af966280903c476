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

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/tunnel/agent"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// never has nothing happen for a while.
func (p *pod) never(what string, happens func() bool) {
	p.Helper()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		if happens() {
			p.Fatal(what)
		}
	}
}

func (p *pod) ready() bool { return p.agent.Ready() == nil }

// TestNotReadyBeforeTheFirstPlan: table and supervisor are there before it is known where the node
// is. A pod that is ready then has its neighbour deleted, and the taint removed.
func TestNotReadyBeforeTheFirstPlan(t *testing.T) {
	c := newCluster(t)
	c.client = fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}})
	c.setTaints(taints(wellknown.TaintAgentNotReady))
	c.mountTarget("127.1.0.1")
	local := stunneltest.FreePort(t, "127.0.0.1")
	c.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "")}))
	p, asked := c.pod(stunneltest.FreePort(t, "127.0.0.1").String()), make(chan struct{})
	p.startSupervisor()
	p.startAgent(func(o *agent.Options) {
		o.RemoveStartupTaint = true
		o.Metadata = func(ctx context.Context) (routing.Place, error) {
			select {
			case <-asked:
			case <-ctx.Done():
			}
			return routing.Place{}, errors.New("not on EC2")
		}
	})
	p.until("the table is seen", func() bool {
		usable, _ := p.metric("efs_stunnel_node_table_usable")
		return usable == 1
	})
	p.never("it is ready before its tunnels were planned", p.ready)
	if len(c.taints()) != 1 {
		t.Error("the startup taint is gone before any tunnel serves")
	}
	close(asked)
	p.until("it is ready", p.ready)
	if !p.up() {
		t.Error("it is ready before its tunnel has answered")
	}
	p.until("the taint is gone", func() bool { return len(c.taints()) == 0 })
}

// TestForeignPortStopsNoRollout: a stranger has the port, and the old pod stands by beside it.
func TestForeignPortStopsNoRollout(t *testing.T) {
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
		t.Errorf("it has not proved the other tunnel: %v", err)
	}
	first.endAgent()
	first.endSupervisor()
	second.until("the new pod serves what it can, and stands by for the rest", func() bool {
		return second.answers(free) == nil && second.supervised("fs-1").Accept == "127.0.0.2:"+strconv.Itoa(int(taken.Port()))
	})
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	second.until("it takes the port when that is free", func() bool { return second.answers(taken) == nil })
}

// TestUnreadableTargetStopsARollout: only the old pod knows what the table last said of it.
func TestUnreadableTargetStopsARollout(t *testing.T) {
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
		t.Errorf("the old pod serves all that there is, and says: %v", err)
	}
	second := c.pod(first.http)
	second.startSupervisor()
	second.startAgent(func(o *agent.Options) { o.HealthWait = 0 })
	second.until("the new pod serves the good target", func() bool {
		up, _ := second.metric("efs_stunnel_node_tunnel_up", "fs-1")
		return up == 1
	})
	second.never("it is ready without the other", second.ready)
	if err := second.agent.Ready(); !strings.Contains(err.Error(), `"fs-2"`) {
		t.Errorf("got %v, want the name of the target", err)
	}
	second.endAgent()
	client := second.client
	second.client = fake.NewClientset() // knows nothing
	second.startAgent(func(o *agent.Options) { o.HealthWait = 0 })
	second.never("it is ready after a restart, with what it kept of the table", second.ready)
	second.endAgent()
	second.client = client
	second.startAgent(nil)
	c.publishText(good)
	second.until("the new pod is ready when the table is mended", second.ready)
}
