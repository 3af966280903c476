package supervise_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// take listens on a port.
func (w *world) take(address netip.AddrPort) net.Listener {
	w.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.Context(), "tcp", address.String())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { release(listener) })
	return listener
}

// release lets a port go, once or more often.
func release(listener net.Listener) {
	_ = listener.Close() // the error says that it was closed before
}

func isPortTaken(s supervise.Tunnel) bool {
	return s.Process != nil && s.Process.Reason == supervise.ReasonPortTaken
}

func TestPortTakenAtStart(t *testing.T) {
	w := newWorld(t)
	tunnel, other := w.tunnel("fs-1", w.server().Address), w.tunnel("fs-2", w.server().Address)
	thief := w.take(tunnel.Accept)
	generation := w.write(tunnel)
	w.serveBeside(func() string { return w.write(other) }, "fs-2")
	s := w.until("fs-1", "names the port", isPortTaken)
	if s.State != supervise.StateFailed || s.Listening || s.PID != 0 || s.Problems[supervise.ReasonPortTaken] != 1 {
		t.Errorf("got %+v, want a failed tunnel without a process", s)
	}
	if lines := w.log.lines("level=ERROR", "reason=PortTaken", "fileSystem=fs-1"); len(lines) != 1 {
		t.Errorf("got %q, want one line however often the port is looked at", lines)
	}
	w.echo(w.dial(other.Accept))

	freed := time.Now()
	release(thief)
	if s := w.serving("fs-1", generation); s.Process != nil {
		t.Errorf("got %+v, want no problem any more", s.Process)
	}
	t.Logf("listening %s after the port was free", time.Since(freed))
	w.echo(w.dial(tunnel.Accept))
}

// serveBeside starts the supervisor and waits for another tunnel.
func (w *world) serveBeside(write func() string, name string) {
	w.Helper()
	generation := write()
	w.supervise()
	w.serving(name, generation)
}

// Something takes the port while stunnel is being restarted.
func TestPortTakenLater(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	began := w.serving("fs-1", generation)
	// Whoever kills it again and again gets the port in the end.
	var thief net.Listener
	w.poll("the port is stolen", func() bool {
		if pid := w.status("fs-1").PID; pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone
		}
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", tunnel.Accept.String())
		thief = listener
		return err == nil
	}, func() any { return w.status("fs-1") })
	s := w.until("fs-1", "names the port", isPortTaken)
	if s.State != supervise.StateFailed || s.Listening {
		t.Errorf("got %+v, want it failed", s)
	}
	release(thief)
	if again := w.serving("fs-1", generation); again.PID == began.PID {
		t.Error("got the process that was killed")
	}
	w.echo(w.dial(tunnel.Accept))
}

// A tunnel that is to move to a port that is taken stays where it is, with its connections,
// until it can.
func TestTakeover(t *testing.T) {
	w := newWorld(t)
	old := newWorld(t)
	old.authority = w.authority
	server := w.server()
	volumes := w.tunnel("fs-1", server.Address)
	oldGeneration := old.write(volumes)
	old.supervise()
	old.serving("fs-1", oldGeneration)

	standby := volumes
	standby.Accept = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), volumes.Accept.Port())
	standbyGeneration := w.write(standby)
	w.supervise()
	began := w.serving("fs-1", standbyGeneration)
	conn := w.dial(standby.Accept)
	w.echo(conn)

	generation := w.write(volumes)
	waiting := w.until("fs-1", "waits for the port", isPortTaken)
	if waiting.PID != began.PID || !waiting.Listening || waiting.Generation != standbyGeneration || waiting.State != supervise.StateRunning {
		t.Errorf("got %+v, want it to serve on the standby address", waiting)
	}
	old.echo(old.dial(volumes.Accept))

	gap := make(chan time.Duration, 1)
	go func() { gap <- measureGap(t, volumes.Accept) }()
	old.end()
	after := w.serving("fs-1", generation)
	if after.PID != began.PID || after.Reloads != 1 {
		t.Errorf("got %+v, want the standby's process to have moved", after)
	}
	t.Logf("nobody listened for %s", <-gap)
	w.echo(conn)
	w.echo(w.dial(volumes.Accept))
}

// measureGap is the time from the first refused connection to the first that is not.
func measureGap(t *testing.T, address netip.AddrPort) time.Duration {
	var refused time.Time
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address.String())
		switch {
		case err == nil:
			conn.Close()
			if !refused.IsZero() {
				return time.Since(refused)
			}
		case errors.Is(err, syscall.ECONNREFUSED) && refused.IsZero():
			refused = time.Now()
		}
	}
	return 0
}
