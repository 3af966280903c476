package supervise_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// listenOn occupies a port.
func (h *harness) listenOn(address netip.AddrPort) net.Listener {
	h.Helper()
	listener, err := (&net.ListenConfig{}).Listen(h.Context(), "tcp", address.String())
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { closeListener(listener) })
	return listener
}

// closeListener may be called more than once.
func closeListener(listener net.Listener) {
	_ = listener.Close() // may be closed already
}

func isPortTaken(s tunnelspec.TunnelStatus) bool {
	return s.Process != nil && s.Process.Reason == tunnelspec.ReasonPortTaken
}

func TestTakenPortFailsTunnelUntilItIsFree(t *testing.T) {
	h := newHarness(t)
	tunnel, other := h.newTunnel("fs-1", h.startServer().Address), h.newTunnel("fs-2", h.startServer().Address)
	occupant := h.listenOn(tunnel.Accept)
	generation := h.writeSpec(tunnel)
	h.startWith(func() string { return h.writeSpec(other) }, "fs-2")
	s := h.waitFor("fs-1", "reports the taken port", isPortTaken)
	if s.State != tunnelspec.StateFailed || s.Listening || s.PID != 0 || s.Problems[tunnelspec.ReasonPortTaken] != 1 {
		t.Errorf("got %+v, want a failed tunnel without a process", s)
	}
	if lines := h.log.lines("level=ERROR", "reason=PortTaken", "fileSystem=fs-1"); len(lines) != 1 {
		t.Errorf("got %q, want one line for all attempts to listen", lines)
	}
	h.checkEcho(h.dial(other.Accept))

	freed := time.Now()
	closeListener(occupant)
	if s := h.waitServing("fs-1", generation); s.Process != nil {
		t.Errorf("got %+v, want no problem", s.Process)
	}
	t.Logf("listening %s after the port was free", time.Since(freed))
	h.checkEcho(h.dial(tunnel.Accept))
}

func TestTunnelWithThePortOfAnotherWaitsForIt(t *testing.T) {
	h := newHarness(t)
	first, second := h.startServer(), h.startServer()
	tunnel, other := h.newTunnel("fs-1", first.Address), h.newTunnel("fs-2", second.Address)
	other.Accept = tunnel.Accept
	h.startWith(func() string { return h.writeSpec(tunnel) }, "fs-1")
	generation := h.writeSpec(other)
	s := h.waitFor("fs-2", "reports the taken port", isPortTaken)
	if !strings.Contains(s.Process.Message, "tunnel fs-1") || s.Listening || s.PID != 0 {
		t.Errorf("got %+v, want a tunnel without a process, and the other tunnel in the message", s)
	}
	h.checkEcho(h.dial(tunnel.Accept))
	if err := h.dir.Remove("fs-1"); err != nil {
		t.Fatal(err)
	}
	if s := h.waitServing("fs-2", generation); s.Process != nil {
		t.Errorf("got %+v, want no problem", s.Process)
	}
	h.checkEcho(h.dial(tunnel.Accept))
	if first.Connections.Load() != 1 || second.Connections.Load() != 1 {
		t.Errorf("got %d and %d connections, want one to each server", first.Connections.Load(), second.Connections.Load())
	}
}

func TestTunnelsSwapPorts(t *testing.T) {
	h := newHarness(t)
	first, second := h.startServer(), h.startServer()
	tunnel, other := h.newTunnel("fs-1", first.Address), h.newTunnel("fs-2", second.Address)
	h.writeSpec(tunnel)
	h.startWith(func() string { return h.writeSpec(other) }, "fs-2")
	tunnel.Accept, other.Accept = other.Accept, tunnel.Accept
	generation := h.writeSpec(tunnel)
	h.waitFor("fs-1", "reports the taken port", isPortTaken)
	otherGeneration := h.writeSpec(other)
	h.waitServing("fs-1", generation)
	h.waitServing("fs-2", otherGeneration)
	h.checkEcho(h.dial(tunnel.Accept))
	if first.Connections.Load() != 1 || second.Connections.Load() != 0 {
		t.Errorf("got %d and %d connections, want one to the first server", first.Connections.Load(), second.Connections.Load())
	}
}

// startWith starts the supervisor and waits until a tunnel serves.
func (h *harness) startWith(write func() string, name string) {
	h.Helper()
	generation := write()
	h.startSupervisor()
	h.waitServing(name, generation)
}

func TestPortStaysTakenWhenStunnelDies(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	h.writeSpec(tunnel)
	h.startSupervisor()
	for range 5 {
		pid := h.waitFor("fs-1", "runs", func(s tunnelspec.TunnelStatus) bool {
			return s.State == tunnelspec.StateRunning && isAlive(s.PID)
		}).PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h.poll("stunnel has exited", func() bool {
			if listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", tunnel.Accept.String()); err == nil {
				closeListener(listener)
				t.Fatal("another process can listen on the port")
			}
			return !isAlive(pid)
		}, func() any { return h.status("fs-1") })
		h.checkEcho(h.dial(tunnel.Accept))
	}
}

// TestOtherUsersCannotSharePorts keeps connections secret: the kernel would send half of them to a
// socket that shares the port, and they are not encrypted on this side of the tunnel.
func TestOtherUsersCannotSharePorts(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	if err := bindSharedAs(os.Getuid(), tunnel.Accept); err != nil {
		t.Errorf("same user: got %v, want that the supervisor of the next pod can listen", err)
	}
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	const nobody = 65534
	if err := bindSharedAs(nobody, tunnel.Accept); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("other user: got %v, want that the port is in use", err)
	}
}

// bindSharedAs binds a socket to a port as another user, on a thread of its own.
func bindSharedAs(uid int, address netip.AddrPort) error {
	bound := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread of that user ends
		_, err := unix.SetfsuidRetUid(uid)
		if err == nil {
			err = bindShared(address)
		}
		bound <- err
	}()
	return <-bound
}

func bindShared(address netip.AddrPort) error {
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
