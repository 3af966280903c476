package supervise_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// patience is for a machine that does other things, too.
const patience = 60 * time.Second

const hostName = "fs-1.efs.us-east-1.amazonaws.com"

// world is a folder with tunnels' files, and a supervisor of it in this process.
type world struct {
	*testing.T
	prefix    string
	dir       confdir.Dir
	program   string
	authority *stunneltest.Authority
	log       *logBuffer
	idle      time.Duration            // of processes; 0 has all run always
	change    func(*supervise.Options) // nil for none
	cancel    context.CancelFunc       // ends the supervisor
	ended     chan error               // has its result
}

// newWorld has no supervisor yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "stunnel.conf")
	dir, err := confdir.Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		T: t, prefix: prefix, dir: dir, program: stunneltest.Path(t),
		authority: stunneltest.NewAuthority(t), log: &logBuffer{},
	}
}

// optionsOf has processes become stunnel by way of this test program.
func optionsOf(prefix, program string, idle time.Duration) supervise.Options {
	return supervise.Options{
		Prefix: prefix, Stunnel: program, Idle: idle, MemoryLimit: supervise.DefaultMemoryLimit,
		Launcher: []string{"/usr/bin/env", variableRole + "=launch", os.Args[0]},
		Clients:  func() (sockets.Uses, error) { return sockets.Clients(-1) }, Listening: sockets.Listening,
		ServeOn: patience, StopGrace: 5 * time.Second,
	}
}

func (w *world) supervise() {
	ctx, cancel := context.WithCancel(w.Context())
	w.cancel, w.ended = cancel, make(chan error, 1)
	options := optionsOf(w.prefix, w.program, w.idle)
	options.Log = slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if w.change != nil {
		w.change(&options)
	}
	go func() { w.ended <- supervise.Run(ctx, options) }()
	w.Cleanup(func() {
		w.end()
		if w.Failed() {
			w.Log(w.log.String())
		}
	})
}

// end ends the supervisor, if it has not ended.
func (w *world) end() {
	w.Helper()
	w.cancel()
	select {
	case err := <-w.ended:
		if err != nil {
			w.Errorf("the supervisor ended with %v", err)
		}
		w.ended <- nil // for who asks again
	case <-time.After(patience):
		w.Fatal("the supervisor does not end")
	}
}

// server is a TLS server with a certificate that tunnels accept.
func (w *world) server() *stunneltest.Server {
	w.Helper()
	return stunneltest.Serve(w.T, w.serverConfig(), nil)
}

func (w *world) serverConfig() *tls.Config {
	w.Helper()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{w.authority.Valid(w.T, hostName)}}
}

// tunnelAddress is no address that connections come from, so that none takes a port first.
const tunnelAddress = "127.0.0.9"

// tunnel is one to the servers, on a free port.
func (w *world) tunnel(name string, connect ...netip.AddrPort) spec.Tunnel {
	w.Helper()
	return spec.Tunnel{
		Name: name, Accept: stunneltest.FreePort(w.T, tunnelAddress), Connect: connect,
		CheckHost: hostName, CAFile: w.authority.File,
	}
}

// write puts a tunnel's specification in place and returns its generation.
func (w *world) write(t spec.Tunnel) string {
	w.Helper()
	text, err := spec.Encode(t)
	if err != nil {
		w.Fatal(err)
	}
	return w.writeBytes(t.Name, text)
}

func (w *world) writeBytes(name string, text []byte) string {
	w.Helper()
	if _, err := w.dir.Write(name, text); err != nil {
		w.Fatal(err)
	}
	return spec.Generation(text)
}

// status is a tunnel's; zero when there is none.
func (w *world) status(name string) supervise.Tunnel {
	status, err := supervise.ReadStatus(w.dir)
	if err != nil {
		return supervise.Tunnel{}
	}
	return status.Tunnels[name]
}

// until waits for a tunnel's status to be as wanted, and returns it.
func (w *world) until(name, what string, wanted func(supervise.Tunnel) bool) supervise.Tunnel {
	w.Helper()
	var last supervise.Tunnel
	w.poll(name+" "+what, func() bool {
		last = w.status(name)
		return wanted(last)
	}, func() any { return last })
	return last
}

// serving waits until a tunnel listens with a configuration.
func (w *world) serving(name, generation string) supervise.Tunnel {
	w.Helper()
	return w.until(name, "serves", func(s supervise.Tunnel) bool {
		return s.State == supervise.StateRunning && s.Listening && s.Generation == generation
	})
}

// kill kills a tunnel's stunnel and waits until the status tells of the next one, which serves before.
func (w *world) kill(name string) {
	w.Helper()
	killed := w.until(name, "runs", func(s supervise.Tunnel) bool { return s.State == supervise.StateRunning }).PID
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		w.Fatal(err)
	}
	w.until(name, "runs again", func(s supervise.Tunnel) bool {
		return s.State == supervise.StateRunning && s.PID != killed
	})
}

func (w *world) poll(what string, done func() bool, last func() any) {
	w.Helper()
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			w.Fatalf("not in time: %s; last was %+v", what, last())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// dial opens a connection through a tunnel.
func (w *world) dial(accept netip.AddrPort) net.Conn {
	w.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.Context(), "tcp", accept.String())
	if err != nil {
		w.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { conn.Close() })
	return conn
}

// roundTrip sends words and wants them back.
func roundTrip(conn net.Conn, words string) error {
	if _, err := io.WriteString(conn, words); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, len(words)))
	return err
}

func (w *world) echo(conn net.Conn) {
	w.Helper()
	if err := roundTrip(conn, "there and back"); err != nil {
		w.Errorf("through the tunnel: %v", err)
	}
}

// isAlive is false for processes that ended, also for those that nobody waited for yet.
func isAlive(pid int) bool { return syscall.Kill(pid, 0) == nil && !isZombie(pid) }

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines are those that have all the parts.
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
