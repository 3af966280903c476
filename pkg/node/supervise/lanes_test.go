package supervise_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/test/support/lanestest"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// startLanes starts a tunnel with lanes to a server, and returns its status once it serves.
func (h *harness) startLanes(lanes int, server *lanestest.Server) tunnelspec.Tunnel {
	h.Helper()
	h.changeOptions = func(o *supervise.Options) { o.Lanes = lanes }
	h.startSupervisor()
	tunnel := h.newTunnel("fs-1", stunneltest.Serve(h.T, h.serverConfig(), server.Serve).Address)
	h.waitServing("fs-1", h.writeSpec(tunnel))
	return tunnel
}

func (h *harness) sockets() []string {
	h.Helper()
	found, err := filepath.Glob(h.prefix + "-lane*")
	if err != nil {
		h.Fatal(err)
	}
	return found
}

func partitioned() *lanestest.Server {
	return &lanestest.Server{Partitions: 3, Kind: lanestest.Ready, Lanes: 5, BusyRate: 1000}
}

// TestOneLaneIsNoFront: without lanes, nothing differs from a supervisor that has none.
func TestOneLaneIsNoFront(t *testing.T) {
	configOf := func(lanes int) (text string, sockets int, conns []lanestest.Conn) {
		h, server := newHarness(t), partitioned()
		tunnel := h.startLanes(lanes, server)
		conn := h.dial(tunnel.Accept)
		if err := lanestest.Load(conn, 1, 20, 5, 100, 100); err != nil {
			t.Fatal(err)
		}
		conn.Close() // the shutdown waits for it
		b, err := os.ReadFile(h.dir.Config("fs-1").Path())
		if err != nil {
			t.Fatal(err)
		}
		if hasStatus := h.status("fs-1").Lanes != nil; hasStatus && lanes == 1 {
			t.Error("the status has lanes")
		}
		h.stopSupervisor()
		text = strings.NewReplacer(tunnel.Accept.String(), "ACCEPT", tunnel.Connect[0].String(), "CONNECT", h.authority.File, "CA").Replace(string(b))
		return text, len(h.sockets()), server.Conns()
	}
	one, _, conns := configOf(1)
	if len(conns) != 1 || conns[0].Greeted {
		t.Errorf("with one lane, the server got %+v", conns)
	}
	five, left, _ := configOf(5)
	if one != five || left != 0 {
		t.Errorf("with five lanes, %d sockets are left and the configuration is\n%s\nwant\n%s", left, five, one)
	}
}

// TestLanesThroughStunnel: five connections of one partition carry what one client asks for, in equal parts.
func TestLanesThroughStunnel(t *testing.T) {
	h, server := newHarness(t), partitioned()
	server.Rate = 4 << 20
	tunnel := h.startLanes(5, server)
	conn := h.dial(tunnel.Accept)
	defer conn.Close() // the shutdown waits for it
	first := uint32(1000)
	load := func(calls int) {
		t.Helper()
		if err := lanestest.Load(conn, first, calls, 20, 0, 64<<10); err != nil {
			t.Fatal(err)
		}
		first += uint32(calls)
	}
	used := func() (open []lanestest.Conn) {
		for _, c := range server.Conns() {
			if !c.Ended && c.Requests > 0 {
				open = append(open, c)
			}
		}
		return open
	}
	h.poll("five lanes are used", func() bool { load(20); return len(used()) == 5 }, func() any { return used() })
	before := used()
	load(500)
	total := 0
	for i, c := range used() {
		share := c.Bytes - before[i].Bytes
		total += share
		// A fifth is 6.25 MiB; one connection that limits the others would have most. A busy machine is less even.
		if share < 1<<20 || share > 16<<20 {
			t.Errorf("connection %d carried %d of 32,768,000 bytes", i, share)
		}
	}
	if total < 500*64<<10 || server.Wrong() != 0 {
		t.Errorf("five lanes carried %d bytes, and %d requests came to a wrong partition", total, server.Wrong())
	}
	h.waitFor("fs-1", "has lanes in its status", func(s tunnelspec.TunnelStatus) bool { return s.Lanes != nil && s.Lanes.Open == 5 })
}

// TestFrontOutlivesStunnel: the port and the front stay when stunnel dies, and only connections end.
func TestFrontOutlivesStunnel(t *testing.T) {
	h, server := newHarness(t), partitioned()
	tunnel := h.startLanes(5, server)
	for range 3 {
		conn := h.dial(tunnel.Accept)
		if err := lanestest.Load(conn, 1, 20, 5, 100, 100); err != nil {
			t.Fatal(err)
		}
		h.killStunnel("fs-1")
		if _, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("got %v, want the end of the connection", err)
		}
	}
	if len(h.sockets()) != 1 {
		t.Errorf("there are sockets at %v", h.sockets())
	}
}

// TestIdleTunnelsStartWithLanes: stunnel starts when the front needs the first lane, and stops without one.
func TestIdleTunnelsStartWithLanes(t *testing.T) {
	h, server := newHarness(t), partitioned()
	h.idle = time.Second
	h.changeOptions = func(o *supervise.Options) { o.Lanes = 3 }
	h.startSupervisor()
	tunnel := h.newTunnel("fs-1", stunneltest.Serve(t, h.serverConfig(), server.Serve).Address)
	h.writeSpec(tunnel)
	resting := func(s tunnelspec.TunnelStatus) bool { return s.State == tunnelspec.StateIdle }
	h.waitFor("fs-1", "rests", resting)
	conn := h.dial(tunnel.Accept)
	if err := lanestest.Load(conn, 1, 20, 5, 100, 100); err != nil {
		t.Fatal(err)
	}
	h.waitFor("fs-1", "runs", func(s tunnelspec.TunnelStatus) bool { return s.State == tunnelspec.StateRunning })
	conn.Close()
	h.waitFor("fs-1", "rests again", resting)
	again := h.dial(tunnel.Accept)
	if err := lanestest.Load(again, 1, 20, 5, 100, 100); err != nil {
		t.Fatal(err)
	}
	again.Close() // the shutdown waits for it
}

// TestReloadKeepsLanes: mounts keep their connections, and new ones go to the new server.
func TestReloadKeepsLanes(t *testing.T) {
	h, server, next := newHarness(t), partitioned(), partitioned()
	tunnel := h.startLanes(5, server)
	conn := h.dial(tunnel.Accept)
	defer conn.Close() // the shutdown waits for it
	began := h.status("fs-1")
	first := uint32(1000)
	h.poll("there are lanes", func() bool {
		if err := lanestest.Load(conn, first, 20, 5, 100, 20000); err != nil {
			t.Fatal(err)
		}
		first += 20
		open := 0
		for _, c := range server.Conns() {
			if !c.Ended && c.Requests > 0 {
				open++
			}
		}
		return open == 5
	}, func() any { return server.Conns() })
	tunnel.Connect[0] = stunneltest.Serve(t, h.serverConfig(), next.Serve).Address
	if s := h.waitServing("fs-1", h.writeSpec(tunnel)); s.PID != began.PID || s.Reloads != began.Reloads+1 {
		t.Errorf("got %+v after %+v, want the same process, reloaded once", s, began)
	}
	again := h.dial(tunnel.Accept)
	defer again.Close()
	for _, c := range []net.Conn{conn, again} {
		if err := lanestest.Load(c, first, 20, 5, 100, 100); err != nil {
			t.Error(err)
		}
	}
	if len(next.Conns()) == 0 || server.Wrong()+next.Wrong() > 0 {
		t.Errorf("%d connections came to the new server, %d requests to a wrong partition", len(next.Conns()), server.Wrong()+next.Wrong())
	}
}
