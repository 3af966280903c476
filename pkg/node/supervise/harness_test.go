package supervise_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/test/support/loggingtest"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// testTimeout is long enough for a busy machine.
const testTimeout = 60 * time.Second

const hostName = "fs-1.efs.us-east-1.amazonaws.com"

// harness is a configuration directory with a supervisor in this process.
type harness struct {
	*testing.T
	prefix        string
	dir           confdir.Dir
	program       string
	authority     *stunneltest.Authority
	log           *logBuffer
	idle          time.Duration            // Options.Idle
	changeOptions func(*supervise.Options) // may be nil
	cancel        context.CancelFunc       // stops the supervisor
	ended         chan error               // has the result of supervise.Run
}

// newHarness does not start the supervisor.
func newHarness(t *testing.T) *harness {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "stunnel.conf")
	dir, err := confdir.Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return &harness{
		T: t, prefix: prefix, dir: dir, program: stunneltest.Path(t),
		authority: stunneltest.NewAuthority(t), log: &logBuffer{},
	}
}

// newOptions uses this test program as launcher.
func newOptions(prefix, program string, idle time.Duration) supervise.Options {
	return supervise.Options{
		Prefix: prefix, Stunnel: program, Idle: idle, MemoryLimit: supervise.DefaultMemoryLimit,
		Launcher: []string{"/usr/bin/env", variableRole + "=launch", os.Args[0]},
		Clients:  func() (sockets.ClientCounts, error) { return new(sockets.Lister).Clients(-1) }, Listening: new(sockets.Lister).Listening,
		DrainTimeout: testTimeout, StopGrace: 5 * time.Second,
	}
}

func (h *harness) startSupervisor() {
	ctx, cancel := context.WithCancel(h.Context())
	h.cancel, h.ended = cancel, make(chan error, 1)
	options := newOptions(h.prefix, h.program, h.idle)
	options.Log = slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if h.changeOptions != nil {
		h.changeOptions(&options)
	}
	go func() { h.ended <- supervise.Run(ctx, options) }()
	h.Cleanup(func() {
		h.stopSupervisor()
		if h.Failed() {
			h.Log(h.log.String())
		}
	})
}

// stopSupervisor stops the supervisor and waits for it. It may be called more than once.
func (h *harness) stopSupervisor() {
	h.Helper()
	h.cancel()
	select {
	case err := <-h.ended:
		if err != nil {
			h.Errorf("supervisor returned %v", err)
		}
		h.ended <- nil // for the next call
	case <-time.After(testTimeout):
		h.Fatal("timed out waiting for the supervisor to return")
	}
}

// startServer starts an echo server with a certificate that tunnels accept.
func (h *harness) startServer() *stunneltest.Server {
	h.Helper()
	return stunneltest.Serve(h.T, h.serverConfig(), nil)
}

func (h *harness) serverConfig() *tls.Config {
	h.Helper()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{h.authority.Valid(h.T, hostName)}}
}

// tunnelAddress is no source address of connections, so that no connection occupies a port on it.
const tunnelAddress = "127.0.0.9"

// newTunnel returns a tunnel to the servers on a free port.
func (h *harness) newTunnel(name string, connect ...netip.AddrPort) tunnelspec.Tunnel {
	h.Helper()
	return tunnelspec.Tunnel{
		Name: name, Accept: stunneltest.FreePort(h.T, tunnelAddress), Connect: connect,
		CheckHost: hostName, CAFile: h.authority.File,
	}
}

// writeSpec writes a tunnel's specification and returns its generation.
func (h *harness) writeSpec(t tunnelspec.Tunnel) string {
	h.Helper()
	text, err := tunnelspec.Encode(t)
	if err != nil {
		h.Fatal(err)
	}
	return h.writeSpecBytes(t.Name, text)
}

func (h *harness) writeSpecBytes(name string, text []byte) string {
	h.Helper()
	if err := h.dir.Spec(name).Write(text); err != nil {
		h.Fatal(err)
	}
	return tunnelspec.Generation(text)
}

// status returns a tunnel's status, zero if there is none.
func (h *harness) status(name string) tunnelspec.TunnelStatus {
	status, err := supervise.ReadStatus(h.dir)
	if err != nil {
		return tunnelspec.TunnelStatus{}
	}
	return status.Tunnels[name]
}

// waitFor returns the status of a tunnel once it meets the condition.
func (h *harness) waitFor(name, what string, condition func(tunnelspec.TunnelStatus) bool) tunnelspec.TunnelStatus {
	h.Helper()
	var last tunnelspec.TunnelStatus
	h.poll(name+" "+what, func() bool {
		last = h.status(name)
		return condition(last)
	}, func() any { return last })
	return last
}

// waitServing waits until a tunnel serves with the configuration of a generation.
func (h *harness) waitServing(name, generation string) tunnelspec.TunnelStatus {
	h.Helper()
	return h.waitFor(name, "serves", func(s tunnelspec.TunnelStatus) bool {
		return s.State == tunnelspec.StateRunning && s.Listening && s.Generation == generation
	})
}

// killStunnel kills a tunnel's stunnel and waits until the status reports the next process.
func (h *harness) killStunnel(name string) {
	h.Helper()
	killed := h.waitFor(name, "runs", func(s tunnelspec.TunnelStatus) bool { return s.State == tunnelspec.StateRunning }).PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		h.Fatal(err)
	}
	h.waitFor(name, "runs again", func(s tunnelspec.TunnelStatus) bool {
		return s.State == tunnelspec.StateRunning && s.PID != killed
	})
}

func (h *harness) poll(what string, done func() bool, last func() any) {
	h.Helper()
	for deadline := time.Now().Add(testTimeout); !done(); {
		if time.Now().After(deadline) {
			h.Fatalf("timed out waiting until %s; last state: %+v", what, last())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// dial connects to a tunnel.
func (h *harness) dial(accept netip.AddrPort) net.Conn {
	h.Helper()
	conn, err := (&net.Dialer{}).DialContext(h.Context(), "tcp", accept.String())
	if err != nil {
		h.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { conn.Close() })
	return conn
}

// roundTrip sends a text and reads as many bytes.
func roundTrip(conn net.Conn, text string) error {
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(text)))
	return err
}

func (h *harness) checkEcho(conn net.Conn) {
	h.Helper()
	if err := roundTrip(conn, "hello"); err != nil {
		h.Errorf("echo through the tunnel: %v", err)
	}
}

// isAlive reports whether a process runs; a zombie does not.
func isAlive(pid int) bool { return syscall.Kill(pid, 0) == nil && !isZombie(pid) }

type logBuffer struct{ loggingtest.Buffer }

// lines returns the lines that contain all parts.
func (b *logBuffer) lines(parts ...string) []string {
	var found []string
	for line := range strings.Lines(b.String()) {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}
