package agent_test

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
)

// redirected is a network whose new connections to tunnels are hijacked while it is on.
type redirected struct {
	probe.Network

	on atomic.Bool
}

func (r *redirected) Tunnel(ctx context.Context, accept netip.AddrPort) (net.Conn, error) {
	if r.on.Load() {
		return nil, probe.ErrHijacked
	}
	return r.Network.Tunnel(ctx, accept)
}

func TestHijackedPortIsReportedWithoutRestart(t *testing.T) {
	p, local, near, _ := oneTunnel(t)
	p.endAgent()
	network := &redirected{}
	network.CAFile = p.authority.File
	network.on.Store(true)
	near.silence() // which would cause a failover
	p.use(local)
	p.startAgent(func(o *agent.Options) { o.Dialer, o.ProbeInterval = network, time.Second })
	port := strconv.Itoa(int(local.Port()))
	if message := p.event(wellknown.EventPortHijacked); !strings.Contains(message, "hostPort "+port) || !strings.Contains(message, "nodePort "+port) {
		t.Errorf("the event lacks the port: %q", message)
	}
	hijacked := func() bool {
		value, _ := p.metric("efs_stunnel_node_tunnel_hijacked", "fs-1")
		return value == 1
	}
	p.until("the metric reports it", hijacked)
	rounds := p.probes("Hijacked")
	p.until("two more rounds have passed", func() bool { return p.probes("Hijacked") >= rounds+2 })
	if restarts, _ := p.metric("efs_stunnel_node_tunnel_restarts_total", "fs-1"); restarts != 0 {
		t.Errorf("%v restarts, although the probes do not reach the tunnel", restarts)
	}
	near.unsilence()
	network.on.Store(false)
	p.event(wellknown.EventTunnelHealthy)
	p.until("the metric no longer reports it", func() bool { return !hijacked() })
}
