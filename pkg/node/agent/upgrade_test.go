package agent_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program/nfsnull"
)

// hold opens a connection through a tunnel and does a call over it, as an NFS client does.
func (p *pod) hold(local netip.AddrPort) net.Conn {
	p.Helper()
	conn, err := (&probe.Network{}).Tunnel(p.Context(), local)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { conn.Close() })
	if err := p.call(conn); err != nil {
		p.Fatal(err)
	}
	return conn
}

// use opens a connection, so that the agent probes the tunnel and not only the mount target.
func (p *pod) use(local netip.AddrPort) {
	p.Helper()
	conn, err := (&probe.Network{}).Tunnel(p.Context(), local)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { conn.Close() })
}

func (p *pod) call(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return nfsnull.Call(p.Context(), conn, 7)
}

func supervisedTunnel(p *pod) (tunnelspec.TunnelStatus, error) {
	status, err := supervise.ReadStatus(p.dir)
	return status.Tunnels["fs-1"], err
}

// The second pod finds the port taken, serves on standby beside the first, and takes over when the
// first ends.
func TestUpgradeBySurge(t *testing.T) {
	first, local, _, _ := oneTunnel(t)
	first.until("the old pod is ready", func() bool { return first.agent.Ready() == nil })
	second := first.pod(first.http)
	second.startSupervisor()
	second.startAgent(nil)
	second.until("the new pod is ready", func() bool { return second.agent.Ready() == nil })
	standby := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), local.Port())
	if err := second.serves(standby); err != nil {
		t.Errorf("the new pod does not serve on standby: %v", err)
	}
	if !second.up() {
		t.Error("the new pod is ready before its tunnel has answered")
	}
	before, err := supervisedTunnel(first)
	if err != nil || before.Restarts != 0 {
		t.Errorf("the old tunnel was restarted: %+v, %v", before, err)
	}
	gap := watchGap(t, first.cluster, local, func() {
		first.endAgent()
		first.endSupervisor()
	})
	t.Logf("no process served the port for %s", gap)
	if gap > patience/2 {
		t.Errorf("a gap of %s is too long", gap)
	}
	second.until("the HTTP address is the new pod's", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", second.http)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	second.until("the new pod is not on standby any more", func() bool {
		value, ok := second.metric("efs_stunnel_node_tunnel_standby", "fs-1")
		return ok && value == 0
	})
}

// watchGap returns the longest time between two answers while do runs.
func watchGap(t *testing.T, c *cluster, local netip.AddrPort, do func()) time.Duration {
	t.Helper()
	stop, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		last, worst := time.Now(), time.Duration(0)
		for {
			if c.answers(local) == nil {
				worst, last = max(worst, time.Since(last)), time.Now()
				select {
				case <-stop:
					longest <- worst
					return
				default:
				}
			}
			<-time.After(time.Millisecond)
		}
	}()
	do()
	begin := time.Now()
	for c.answers(local) != nil {
		if time.Since(begin) > patience {
			t.Fatal("no process took over the port")
		}
		<-time.After(time.Millisecond)
	}
	close(stop)
	return <-longest
}
