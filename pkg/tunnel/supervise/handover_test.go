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

	"gnuthought.com/efs-stunnel/pkg/tunnel/fdstore"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// stream opens connections to an address, one after the other, until it is told to end.
type stream struct {
	made, refused, reset atomic.Int64
	stop                 chan struct{}
	done                 sync.WaitGroup
}

// stream also wants each connection to lead somewhere.
func (w *world) stream(address netip.AddrPort) *stream {
	s := &stream{stop: make(chan struct{})}
	s.done.Go(func() {
		for {
			select {
			case <-s.stop:
				return
			default:
				s.connect(w.Context(), address)
			}
		}
	})
	w.Cleanup(s.end)
	return s
}

func (s *stream) connect(ctx context.Context, address netip.AddrPort) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address.String())
	if err == nil {
		defer conn.Close()
		err = errors.Join(conn.SetDeadline(time.Now().Add(patience)), roundTrip(conn, "x"))
	}
	switch {
	case err == nil:
		s.made.Add(1)
	case errors.Is(err, syscall.ECONNREFUSED):
		s.refused.Add(1)
	default:
		s.reset.Add(1)
	}
}

func (s *stream) end() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.done.Wait()
}

// grows waits for so many more connections.
func (w *world) grows(s *stream, more int64) {
	w.Helper()
	want := s.made.Load() + more
	w.poll("connections are made", func() bool { return s.made.Load() >= want }, func() any { return s.made.Load() })
}

// TestReloadsAndDeathsRefuseNobody: connections that are open end with their process; new ones wait
// for the next.
func TestReloadsAndDeathsRefuseNobody(t *testing.T) {
	w := newWorld(t)
	first, second := w.server(), w.server()
	tunnel := w.tunnel("fs-1", first.Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)
	s := w.stream(tunnel.Accept)
	for i := range 10 {
		w.grows(s, 5)
		tunnel.Connect = []netip.AddrPort{[]netip.AddrPort{second.Address, first.Address}[i%2]}
		w.serving("fs-1", w.write(tunnel))
	}
	if s.refused.Load() > 0 || s.reset.Load() > 0 {
		t.Errorf("got %d refused and %d reset of %d beside 10 reloads, want none", s.refused.Load(), s.reset.Load(), s.made.Load())
	}
	for range 10 {
		w.grows(s, 5)
		w.kill("fs-1")
	}
	w.grows(s, 5)
	s.end()
	if s.refused.Load() > 0 {
		t.Errorf("got %d refused of %d beside 10 deaths, want none", s.refused.Load(), s.made.Load())
	}
}

// handOvers is how often pods follow each other.
const handOvers = 4

// connections is how many are made meanwhile.
func connections() int64 {
	if stunneltest.IsLong() {
		return 10_000
	}
	return 2000
}

// TestHandOverRefusesNobody: each new supervisor listens beside the old one, which then ends.
func TestHandOverRefusesNobody(t *testing.T) {
	old := newWorld(t)
	tunnel := old.tunnel("fs-1", old.server().Address)
	generation := old.write(tunnel)
	old.supervise()
	old.serving("fs-1", generation)
	s := old.stream(tunnel.Accept)
	for range handOvers {
		held := old.dial(tunnel.Accept)
		old.echo(held)
		next := newWorld(t)
		next.authority = old.authority
		next.write(tunnel)
		next.supervise()
		next.serving("fs-1", generation)
		old.grows(s, connections()/handOvers)
		old.end()
		if err := roundTrip(held, "x"); err == nil {
			t.Error("a connection outlives its supervisor")
		}
		if len(old.log.lines("handed over")) != 1 {
			t.Error("the log does not tell of the hand-over")
		}
		next.echo(next.dial(tunnel.Accept))
		old = next
	}
	s.end()
	// One that is under way when its stunnel ends is reset, as a kernel's would be.
	if most := int64(handOvers); s.refused.Load() > 0 || s.reset.Load() > most {
		t.Errorf("got %d refused and %d reset of %d, want none and at most %d", s.refused.Load(), s.reset.Load(), s.made.Load(), most)
	}
	t.Logf("%d connections, of which %d were reset", s.made.Load(), s.reset.Load())
}

// TestServesOnUntilNobodyIsConnected: an evicted pod has no successor on a node that is drained.
func TestServesOnUntilNobodyIsConnected(t *testing.T) {
	w := newWorld(t)
	used, unused := w.tunnel("fs-1", w.server().Address), w.tunnel("fs-2", w.server().Address)
	generations := map[string]string{"fs-1": w.write(used), "fs-2": w.write(unused)}
	w.supervise()
	for name, generation := range generations {
		w.serving(name, generation)
	}
	conn := w.dial(used.Accept)
	w.echo(conn)
	w.cancel()
	w.until("fs-2", "ends, as nobody uses it", func(s supervise.Tunnel) bool { return s.State == "" })
	w.echo(conn)
	if err := syscall.Kill(w.status("fs-1").PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := w.dial(used.Accept) // as the kernel would
	w.echo(again)
	again.Close()
	conn.Close()
	w.end()
}

// TestServesOnForSoLong and no longer, though somebody is connected.
func TestServesOnForSoLong(t *testing.T) {
	w := newWorld(t)
	w.change = func(o *supervise.Options) { o.ServeOn = 0 }
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)
	conn := w.dial(tunnel.Accept)
	w.echo(conn)
	w.end()
	if err := roundTrip(conn, "x"); err == nil {
		t.Error("a connection outlives its supervisor")
	}
}

// TestUnknownUse: where the kernel does not tell who is connected, nothing is ended for that, and the
// end is not put off.
func TestUnknownUse(t *testing.T) {
	w := newWorld(t)
	w.idle = time.Nanosecond
	unknown := errors.New("not permitted")
	w.change = func(o *supervise.Options) {
		o.Clients = func() (sockets.Uses, error) { return nil, unknown }
		o.Listening = func() (sockets.Listeners, error) { return nil, unknown }
	}
	tunnel := w.tunnel("fs-1", w.server().Address)
	w.write(tunnel)
	w.supervise()
	w.until("fs-1", "rests", isResting)
	w.echo(w.dial(tunnel.Accept))
	w.poll("the log tells", func() bool { return len(w.log.lines("cannot be seen", "not permitted")) == 1 }, func() any { return nil })
	w.until("fs-1", "runs", func(s supervise.Tunnel) bool { return s.State == supervise.StateRunning })
	w.end()
}

func isResting(s supervise.Tunnel) bool { return s.State == supervise.StateResting && s.Listening }

func TestProcessRunsWhileItIsUsed(t *testing.T) {
	w := newWorld(t)
	w.idle = time.Nanosecond // as often as is looked
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	for range 2 {
		if s := w.until("fs-1", "rests", isResting); s.PID != 0 || s.Generation != generation || s.Restarts != 0 {
			t.Errorf("got %+v, want no process, and what was asked for in force", s)
		}
		conn := w.dial(tunnel.Accept)
		w.echo(conn)
		w.serving("fs-1", generation)
		conn.Close()
	}
}

// TestPortsOutliveAKilledSupervisor: connections wait for the next one.
func TestPortsOutliveAKilledSupervisor(t *testing.T) {
	w := newWorld(t)
	defer w.store()()
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	supervisor := w.superviseApart()
	w.serving("fs-1", generation)
	s := w.stream(tunnel.Accept)
	for range 3 {
		w.grows(s, 10)
		w.poll("the socket is kept", func() bool { return w.kept() == 1 }, func() any { return w.kept() })
		if err := supervisor.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = supervisor.Wait() // killed
		supervisor = w.superviseApart()
		w.grows(s, 10)
	}
	s.end()
	if s.refused.Load() > 0 {
		t.Errorf("got %d refused of %d, want none", s.refused.Load(), s.made.Load())
	}
}

// store keeps the supervisor's sockets as the agent does, until the returned function ends it.
func (w *world) store() (end func()) {
	ctx, cancel := context.WithCancel(w.Context())
	stored := make(chan error, 1)
	go func() { stored <- fdstore.Serve(ctx, w.dir.StoreSocket(), slog.New(slog.DiscardHandler)) }()
	return func() {
		cancel()
		if err := <-stored; err != nil {
			w.Error(err)
		}
	}
}

// kept is how many sockets the store has.
func (w *world) kept() int {
	files := fdstore.Take(w.dir.StoreSocket(), slog.New(slog.DiscardHandler))
	for _, file := range files {
		if err := file.Close(); err != nil {
			w.Error(err)
		}
	}
	return len(files)
}

// TestLeakEndsAlone: connections that are kept open stand for memory that is never given back.
func TestLeakEndsAlone(t *testing.T) {
	w := newWorld(t)
	w.change = func(o *supervise.Options) { o.MemoryLimit = 24 << 20 }
	leaking, other := w.tunnel("fs-1", w.server().Address), w.tunnel("fs-2", w.server().Address)
	generations := map[string]string{"fs-1": w.write(leaking), "fs-2": w.write(other)}
	w.supervise()
	for name, generation := range generations {
		w.serving(name, generation)
	}
	conn := w.dial(other.Accept)
	w.echo(conn)
	began := w.status("fs-1")
	refusedOnce := false
	for range 2000 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", leaking.Accept.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := errors.Join(c.SetDeadline(time.Now().Add(patience)), roundTrip(c, "x")); err != nil {
			refusedOnce = true
			break
		}
	}
	if !refusedOnce {
		t.Fatalf("stunnel takes no notice of its limit (process %d)", began.PID)
	}
	w.echo(conn)
	if s := w.status("fs-2"); s.Problems[supervise.ReasonDied] > 0 {
		t.Errorf("got %+v, want the other tunnel as it was", s)
	}
}

// TestFullDisk: what is right already is not written again.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	folder := w.dir.Prefix()[:len(w.dir.Prefix())-len("/stunnel.conf")]
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("this test needs the right to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	began := w.serving("fs-1", generation)
	w.fill(folder + "/full")
	if err := syscall.Kill(began.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.echo(w.dial(tunnel.Accept))
	if _, err := w.dir.Write("fs-2", make([]byte, 64<<10)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want no space left", err)
	}
}

// fill takes all space there is.
func (w *world) fill(path string) {
	w.Helper()
	file, err := os.Create(path)
	if err != nil {
		w.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		w.Fatal(err)
	}
}
