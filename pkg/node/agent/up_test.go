package agent_test

import (
	"sync/atomic"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

// The agent's own connection is answered all the time.
func TestTunnelIsDownWhenNoClientIsConnectedAndNewConnectionsFail(t *testing.T) {
	var gone atomic.Bool
	p, local, near, far := oneTunnelWith(t, func(o *agent.Options) {
		o.Clients = func() (sockets.ClientCounts, error) {
			if gone.Load() {
				return nil, nil
			}
			return clients()
		}
	})
	p.hold(local)
	rounds := p.probes("success")
	p.until("the agent has a connection through the tunnel", func() bool {
		near.mu.Lock()
		defer near.mu.Unlock()
		return len(near.conns) >= 3 && p.probes("success") >= rounds+3
	})
	near.refuse()
	far.refuse()
	if p.answers(local) == nil {
		t.Error("a new connection is answered")
	}
	p.until("new connections are reported to fail", func() bool {
		failing, _ := p.metric("efs_stunnel_node_tunnel_new_connections_failing", "fs-1")
		return failing == 1
	})
	if !p.up() {
		t.Error("it is reported as down, although the client's connection is answered")
	}
	gone.Store(true)
	p.until("it is down", func() bool { return !p.up() })
}
