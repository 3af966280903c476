package supervise_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// TestNobodyTakesThePort of a tunnel whose stunnel is killed again and again.
func TestNobodyTakesThePort(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	w.write(tunnel)
	w.supervise()
	for range 5 {
		pid := w.until("fs-1", "runs", func(s supervise.Tunnel) bool {
			return s.State == supervise.StateRunning && isAlive(s.PID)
		}).PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		w.poll("it has died", func() bool {
			if listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", tunnel.Accept.String()); err == nil {
				release(listener)
				t.Fatal("the port could be taken")
			}
			return !isAlive(pid)
		}, func() any { return w.status("fs-1") })
		w.echo(w.dial(tunnel.Accept))
	}
}

// TestOtherUsersCannotSharePorts: the kernel sends every second connection to a socket that shares
// the port, and what it carries is not encrypted on this side of the tunnel.
func TestOtherUsersCannotSharePorts(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)
	if err := shareAs(os.Getuid(), tunnel.Accept); err != nil {
		t.Errorf("the supervisor of the next pod cannot listen: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	const nobody = 65534
	if err := shareAs(nobody, tunnel.Accept); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("another user's socket: got %v, want that the port is in use", err)
	}
}

// shareAs binds a socket as another user, on a thread that ends with it.
func shareAs(uid int, address netip.AddrPort) error {
	bound := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so nobody gets a thread of that user
		_, err := unix.SetfsuidRetUid(uid)
		if err == nil {
			err = share(address)
		}
		bound <- err
	}()
	return <-bound
}

func share(address netip.AddrPort) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	return unix.Bind(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()})
}
