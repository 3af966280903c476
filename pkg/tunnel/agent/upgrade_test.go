package agent_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// hold opens a connection through a tunnel, as the kernel's would be.
func (p *pod) hold(local netip.AddrPort) net.Conn {
	p.Helper()
	conn, err := (&probe.Network{}).Tunnel(p.Context(), local)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { conn.Close() })
	if err := p.ask(conn); err != nil {
		p.Fatal(err)
	}
	return conn
}

// use opens a connection, so that the tunnel is probed, and not only its server.
func (p *pod) use(local netip.AddrPort) {
	p.Helper()
	conn, err := (&probe.Network{}).Tunnel(p.Context(), local)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { conn.Close() })
}

func (p *pod) ask(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return probe.Null(p.Context(), conn, 7)
}

func supervisedTunnel(p *pod) (supervise.Tunnel, error) {
	status, err := supervise.ReadStatus(p.dir)
	return status.Tunnels["fs-1"], err
}

// The second pod finds everything taken, proves itself beside the first, and takes over when
// that ends.
func TestUpgradeBySurge(t *testing.T) {
	first, local, _, _ := oneTunnel(t)
	first.until("the old pod is ready", func() bool { return first.agent.Ready() == nil })
	second := first.pod(first.http)
	second.startSupervisor()
	second.startAgent(nil)
	second.until("the new pod is ready", func() bool { return second.agent.Ready() == nil })
	standby := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), local.Port())
	if err := second.serves(standby); err != nil {
		t.Errorf("the new pod does not prove its tunnel beside the old one: %v", err)
	}
	if !second.up() {
		t.Error("the new pod is ready before its tunnel has answered")
	}
	before, err := supervisedTunnel(first)
	if err != nil || before.Restarts != 0 {
		t.Errorf("the old tunnel was disturbed: %+v, %v", before, err)
	}
	gap := watchGap(t, first.cluster, local, func() {
		first.endAgent()
		first.endSupervisor()
	})
	t.Logf("no process served the port for %s", gap)
	if gap > patience/2 {
		t.Errorf("a gap of %s is noticed", gap)
	}
	second.until("the HTTP address is the new pod's", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", second.http)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	})
	second.until("the new pod does not stand by any more", func() bool {
		value, ok := second.metric("efs_stunnel_node_tunnel_standby", "fs-1")
		return ok && value == 0
	})
}

// watchGap is the longest time between two answers while something happens.
func watchGap(t *testing.T, c *cluster, local netip.AddrPort, happens func()) time.Duration {
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
	happens()
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
