package supervise_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/fdstore"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// stream opens connections one after the other, and counts the results.
type stream struct {
	succeeded, refused, reset atomic.Int64
	stop                      chan struct{}
	done                      sync.WaitGroup
}

// startStream starts a stream of connections with one echo each.
func (h *harness) startStream(address netip.AddrPort) *stream {
	s := &stream{stop: make(chan struct{})}
	s.done.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			default:
				s.connect(h.Context(), address)
			}
		}
	})
	h.Cleanup(s.stopAndWait)
	return s
}

func (s *stream) connect(ctx context.Context, address netip.AddrPort) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address.String())
	if err == nil {
		defer conn.Close()
		err = errors.Join(conn.SetDeadline(time.Now().Add(testTimeout)), roundTrip(conn, "x"))
	}
	switch {
	case err == nil:
		s.succeeded.Add(1)
	case errors.Is(err, syscall.ECONNREFUSED):
		s.refused.Add(1)
	default:
		s.reset.Add(1)
	}
}

func (s *stream) stopAndWait() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.done.Wait()
}

// waitConnections waits for a number of further successful connections.
func (h *harness) waitConnections(s *stream, more int64) {
	h.Helper()
	want := s.succeeded.Load() + more
	h.poll("connections succeed", func() bool { return s.succeeded.Load() >= want }, func() any { return s.succeeded.Load() })
}

// TestReloadsAndDeathsRefuseNoConnection allows resets of open connections by deaths of stunnel.
func TestReloadsAndDeathsRefuseNoConnection(t *testing.T) {
	h := newHarness(t)
	first, second := h.startServer(), h.startServer()
	tunnel := h.newTunnel("fs-1", first.Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	s := h.startStream(tunnel.Accept)
	for i := range 10 {
		h.waitConnections(s, 5)
		tunnel.Connect = []netip.AddrPort{[]netip.AddrPort{second.Address, first.Address}[i%2]}
		h.waitServing("fs-1", h.writeSpec(tunnel))
	}
	if s.refused.Load() > 0 || s.reset.Load() > 0 {
		t.Errorf("got %d refused and %d reset of %d during 10 reloads, want none", s.refused.Load(), s.reset.Load(), s.succeeded.Load())
	}
	for range 10 {
		h.waitConnections(s, 5)
		h.killStunnel("fs-1")
	}
	h.waitConnections(s, 5)
	s.stopAndWait()
	if s.refused.Load() > 0 {
		t.Errorf("got %d refused of %d during 10 deaths, want none", s.refused.Load(), s.succeeded.Load())
	}
}

// handOverCount is the number of hand-overs from one supervisor to the next.
const handOverCount = 4

// connectionCount returns the number of connections during all hand-overs.
func connectionCount() int64 {
	if stunneltest.IsLong() {
		return 10_000
	}
	return 400
}

// TestHandOverRefusesNoConnection stops each supervisor while the next one listens, too.
func TestHandOverRefusesNoConnection(t *testing.T) {
	old := newHarness(t)
	tunnel := old.newTunnel("fs-1", old.startServer().Address)
	generation := old.writeSpec(tunnel)
	old.startSupervisor()
	old.waitServing("fs-1", generation)
	s := old.startStream(tunnel.Accept)
	for range handOverCount {
		held := old.dial(tunnel.Accept)
		old.checkEcho(held)
		next := newHarness(t)
		next.authority = old.authority
		next.writeSpec(tunnel)
		next.startSupervisor()
		next.waitServing("fs-1", generation)
		old.waitConnections(s, connectionCount()/handOverCount)
		old.stopSupervisor()
		if err := roundTrip(held, "x"); err == nil {
			t.Error("the connection is open after the shutdown")
		}
		if len(old.log.lines("handed over")) != 1 {
			t.Error("want one log line about the hand-over")
		}
		next.checkEcho(next.dial(tunnel.Accept))
		old = next
	}
	s.stopAndWait()
	// A connection that is open when its stunnel exits is reset.
	if limit := int64(handOverCount); s.refused.Load() > 0 || s.reset.Load() > limit {
		t.Errorf("got %d refused and %d reset of %d, want none and at most %d", s.refused.Load(), s.reset.Load(), s.succeeded.Load(), limit)
	}
	t.Logf("%d connections, of which %d were reset", s.succeeded.Load(), s.reset.Load())
}

// TestShutdownServesUntilLastClientDisconnects is an eviction from a drained node, without a
// successor.
func TestShutdownServesUntilLastClientDisconnects(t *testing.T) {
	h := newHarness(t)
	used, unused := h.newTunnel("fs-1", h.startServer().Address), h.newTunnel("fs-2", h.startServer().Address)
	generations := map[string]string{"fs-1": h.writeSpec(used), "fs-2": h.writeSpec(unused)}
	h.startSupervisor()
	for name, generation := range generations {
		h.waitServing(name, generation)
	}
	conn := h.dial(used.Accept)
	h.checkEcho(conn)
	h.cancel()
	h.waitFor("fs-2", "is closed, as it has no client", func(s tunnelspec.TunnelStatus) bool { return s.State == "" })
	h.checkEcho(conn)
	killed := h.status("fs-1").PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := h.dial(used.Accept) // as the kernel's NFS client does
	h.checkEcho(again)
	pid := h.waitFor("fs-1", "has another process", func(s tunnelspec.TunnelStatus) bool { return s.PID != 0 && s.PID != killed }).PID
	again.Close()
	conn.Close()
	began := time.Now()
	h.stopSupervisor()
	if took := time.Since(began); took > testTimeout/2 || isAlive(pid) {
		t.Errorf("the exit took %s; stunnel still runs: %v", took, isAlive(pid))
	}
}

func TestShutdownEndsConnectionsAfterDrainTimeout(t *testing.T) {
	h := newHarness(t)
	h.changeOptions = func(o *supervise.Options) { o.DrainTimeout = 0 }
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	conn := h.dial(tunnel.Accept)
	h.checkEcho(conn)
	h.stopSupervisor()
	if err := roundTrip(conn, "x"); err == nil {
		t.Error("the connection is open after the shutdown")
	}
}

func TestUnknownClientsPreventIdleStop(t *testing.T) {
	h := newHarness(t)
	h.idle = time.Nanosecond
	errDenied := errors.New("not permitted")
	h.changeOptions = func(o *supervise.Options) {
		o.DrainTimeout = 0
		o.Clients = func() (sockets.ClientCounts, error) { return nil, errDenied }
		o.Listening = func() (sockets.Listeners, error) { return nil, errDenied }
	}
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitFor("fs-1", "is idle", isIdle)
	h.checkEcho(h.dial(tunnel.Accept))
	h.poll("the error is logged", func() bool { return len(h.log.lines("listing client connections failed", "not permitted")) == 1 }, func() any { return nil })
	h.waitFor("fs-1", "runs", func(s tunnelspec.TunnelStatus) bool { return s.State == tunnelspec.StateRunning })
	h.stopSupervisor()
}

func isIdle(s tunnelspec.TunnelStatus) bool { return s.State == tunnelspec.StateIdle && s.Listening }

func TestIdleStunnelStopsAndStartsOnDemand(t *testing.T) {
	for name, denied := range map[string]bool{"with socket diagnostics": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			lister := &sockets.Lister{}
			lister.Denied.Store(denied)
			h.changeOptions = func(o *supervise.Options) {
				o.Clients = func() (sockets.ClientCounts, error) { return lister.Clients(-1) }
			}
			h.checkIdleStops()
		})
	}
}

func (h *harness) checkIdleStops() {
	h.Helper()
	h.idle = time.Nanosecond // idle at the first check without a client
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	for range 2 {
		if s := h.waitFor("fs-1", "is idle", isIdle); s.PID != 0 || s.Generation != generation || s.Restarts != 0 {
			h.Errorf("got %+v, want no process, no restart and the generation of the specification", s)
		}
		conn := h.dial(tunnel.Accept)
		h.checkEcho(conn)
		h.waitServing("fs-1", generation)
		conn.Close()
	}
}

func TestPortStaysOpenWhenSupervisorIsKilled(t *testing.T) {
	h := newHarness(t)
	defer h.startStore()()
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	supervisor := h.startSupervisorProcess()
	h.waitServing("fs-1", generation)
	s := h.startStream(tunnel.Accept)
	for range 3 {
		h.waitConnections(s, 10)
		h.poll("the socket is stored", func() bool { return h.storedSockets() == 1 }, func() any { return h.storedSockets() })
		if err := supervisor.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = supervisor.Wait() // killed
		supervisor = h.startSupervisorProcess()
		h.waitConnections(s, 10)
	}
	s.stopAndWait()
	if s.refused.Load() > 0 {
		t.Errorf("got %d refused of %d, want none", s.refused.Load(), s.succeeded.Load())
	}
}

// startStore stores the supervisor's sockets as the agent does, until the returned function is
// called.
func (h *harness) startStore() (end func()) {
	ctx, cancel := context.WithCancel(h.Context())
	stored := make(chan error, 1)
	go func() { stored <- fdstore.Serve(ctx, h.dir.StoreSocket(), slog.New(slog.DiscardHandler)) }()
	return func() {
		cancel()
		if err := <-stored; err != nil {
			h.Error(err)
		}
	}
}

// storedSockets returns the number of sockets in the store.
func (h *harness) storedSockets() int {
	files := fdstore.Take(h.dir.StoreSocket(), slog.New(slog.DiscardHandler))
	for _, file := range files {
		if err := file.Close(); err != nil {
			h.Error(err)
		}
	}
	return len(files)
}

// TestMemoryLimitEndsOneStunnelOnly uses up memory by open connections.
func TestMemoryLimitEndsOneStunnelOnly(t *testing.T) {
	h := newHarness(t)
	h.changeOptions = func(o *supervise.Options) { o.MemoryLimit = 40 << 20 }
	leaking, other := h.newTunnel("fs-1", h.startServer().Address), h.newTunnel("fs-2", h.startServer().Address)
	generations := map[string]string{"fs-1": h.writeSpec(leaking), "fs-2": h.writeSpec(other)}
	h.startSupervisor()
	for name, generation := range generations {
		h.waitServing(name, generation)
	}
	conn := h.dial(other.Accept)
	h.checkEcho(conn)
	began := h.status("fs-1")
	limited := false
	for range 2000 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", leaking.Accept.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := errors.Join(c.SetDeadline(time.Now().Add(testTimeout)), roundTrip(c, "x")); err != nil {
			limited = true
			break
		}
	}
	if !limited {
		t.Fatalf("process %d serves 2000 connections in spite of its memory limit", began.PID)
	}
	h.checkEcho(conn)
	if s := h.status("fs-2"); s.Problems[tunnelspec.ReasonDied] > 0 {
		t.Errorf("got %+v, want no death of the other tunnel's stunnel", s)
	}
}

func TestStunnelRestartsOnFullDisk(t *testing.T) {
	h := newHarness(t)
	folder := h.dir.Prefix()[:len(h.dir.Prefix())-len("/stunnel.conf")]
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("this test needs permission to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	began := h.waitServing("fs-1", generation)
	h.fillDisk(folder + "/full")
	if err := syscall.Kill(began.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	h.checkEcho(h.dial(tunnel.Accept))
	if err := h.dir.Spec("fs-2").Write(make([]byte, 64<<10)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want no space left", err)
	}
}

// fillDisk writes a file until the disk is full.
func (h *harness) fillDisk(path string) {
	h.Helper()
	file, err := os.Create(path)
	if err != nil {
		h.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		h.Fatal(err)
	}
}
