package agent_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

const ipv6Near = "::1"

// dualStack has a mount target with both addresses in the node's zone.
func dualStack(port int) ports.Target {
	t := target(port, "127.1.0.1", "")
	t.IPv6ByZone = map[string]netip.Addr{nearZone: netip.MustParseAddr(ipv6Near)}
	return t
}

// serveTarget starts a pod that serves fs-1, on a node that has routes as hasRoute says.
func (c *cluster) serveTarget(targetOf func(port int) ports.Target, hasRoute func(...netip.Addr) bool) (*pod, netip.AddrPort) {
	c.Helper()
	local := stunneltest.FreePort(c.T, "127.0.0.1")
	p := c.pod(stunneltest.FreePort(c.T, "127.0.0.1").String())
	p.startSupervisor()
	p.startAgent(func(o *agent.Options) { o.ProbeInterval, o.HasRoute = time.Second, hasRoute })
	c.publish(tableOf(map[string]ports.Target{"fs-1": targetOf(int(local.Port()))}))
	return p, local
}

func everywhere(...netip.Addr) bool { return true }

// uses reports whether the tunnel to fs-1 is up and uses the address first.
func (p *pod) uses(address string) bool {
	_, ok := p.metric("efs_stunnel_node_tunnel_active_info", "fs-1", address, nearZone)
	return ok && p.up()
}

func TestMountTargetWithIPv6OnlyIsServed(t *testing.T) {
	c := newCluster(t)
	c.mountTarget(ipv6Near)
	p, local := c.serveTarget(func(port int) ports.Target {
		only := dualStack(port)
		only.AddressByZone = nil
		return only
	}, everywhere)
	p.until("fs-1 is up", func() bool { return p.uses(ipv6Near) && p.ready() })
	if err := p.serves(local); err != nil {
		t.Errorf("through the tunnel: %v", err)
	}
}

func TestNodePrefersTheFamilyThatItHasARouteTo(t *testing.T) {
	tests := map[string]struct {
		hasRoute func(...netip.Addr) bool
		want     string
		logged   int
		reason   string
	}{
		"both":      {everywhere, "127.1.0.1", 0, ""},
		"IPv4 only": {func(a ...netip.Addr) bool { return a[0].Is4() }, "127.1.0.1", 1, "reason=NoRouteForIPv6"},
		"IPv6 only": {func(a ...netip.Addr) bool { return a[0].Is6() }, ipv6Near, 1, "reason=NoRouteForIPv4"},
		"neither":   {func(...netip.Addr) bool { return false }, "127.1.0.1", 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.mountTarget("127.1.0.1")
			c.mountTarget(ipv6Near)
			p, _ := c.serveTarget(dualStack, tt.hasRoute)
			p.until("fs-1 is up", func() bool { return p.uses(tt.want) })
			if log := p.log.String(); strings.Count(log, "routes of the node changed") != tt.logged || !strings.Contains(log, tt.reason) {
				t.Errorf("want the reason %q in the log %d times:\n%s", tt.reason, tt.logged, log)
			}
			if moved, _ := p.metric("efs_stunnel_node_tunnel_steps_total"); moved != 0 {
				t.Errorf("the tunnel moved %v times to get there", moved)
			}
		})
	}
}

func TestTunnelFailsOverToTheOtherFamily(t *testing.T) {
	c := newCluster(t)
	c.mountTarget("127.1.0.1").refuse()
	c.mountTarget(ipv6Near)
	p, local := c.serveTarget(dualStack, everywhere)
	if message := p.event(wellknown.EventTunnelMoved); !strings.HasSuffix(message, "mount target "+ipv6Near) {
		t.Errorf("got %q, want the address of IPv6", message)
	}
	p.until("it answers", func() bool { return p.uses(ipv6Near) && p.answers(local) == nil })
}
