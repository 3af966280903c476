package stunnelcfg_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// TestSocketsDelayNothing looks at the sockets of a real stunnel: with Nagle's algorithm on either side, each small
// write would wait for the acknowledgement of the one before, 40 ms and more. That stunnel can be told to delay shows
// that the test would notice it.
func TestSocketsDelayNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		global string
		want   map[string]bool // which sides have TCP_NODELAY
	}{
		"as rendered":           {"", map[string]bool{"kernel": true, "server": true}},
		"told to delay":         {"socket = l:TCP_NODELAY=0\nsocket = r:TCP_NODELAY=0\n", map[string]bool{"kernel": false, "server": false}},
		"told on one side only": {"socket = r:TCP_NODELAY=0\n", map[string]bool{"kernel": true, "server": false}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startTunnel(t, tt.global)
			s.exchange(t, 1)
			got := s.noDelay(t)
			for side, want := range tt.want {
				if has, found := got[side]; has != want || !found {
					t.Errorf("TCP_NODELAY of the socket to the %s: %t, found %t; want %t", side, has, found, want)
				}
			}
		})
	}
}

const (
	// mostSystemCalls of stunnel are for a request and its answer, both small: Debian 13's stunnel 5.74 makes four polls,
	// three reads and two writes.
	mostSystemCalls = 10
	countedRequests = 500
)

// TestSystemCallsOfARequest counts what stunnel does for each request and its answer. Unlike times, the number does not
// depend on the machine.
func TestSystemCallsOfARequest(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("counts system calls with strace, which bin/lab strace installs")
	}
	s := startTunnel(t, "")
	s.exchange(t, 1) // the connections are there, and their threads
	summary := filepath.Join(t.TempDir(), "summary")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-c", "-U", "calls,name", "-o", summary, "-p", strconv.Itoa(s.pid))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stderr).ReadString('\n'); err != nil || !strings.Contains(line, "attached") {
		t.Fatalf("strace: %s, %v", line, err)
	}
	s.exchange(t, countedRequests)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // by the signal
	text, err := os.ReadFile(summary)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := totalCalls(text)
	if err != nil {
		t.Fatal(err)
	}
	each := float64(sum) / countedRequests
	t.Logf("%.1f system calls for each request and its answer\n%s", each, text)
	if each < 4 || each > mostSystemCalls {
		t.Errorf("%.1f system calls for each request; want at most %d, and at least two reads and two writes", each, mostSystemCalls)
	}
}

// totalCalls reads the last line of strace's summary.
func totalCalls(summary []byte) (total int, err error) {
	for line := range bytes.Lines(summary) {
		if fields := bytes.Fields(line); len(fields) == 2 && string(fields[1]) == "total" {
			return strconv.Atoi(string(fields[0]))
		}
	}
	return 0, fmt.Errorf("no total in %q", summary)
}

// smallRequest is as long as a GETATTR of NFSv4.1.
const smallRequest = 200

// runningTunnel is a real stunnel between a client and a server that echoes.
type runningTunnel struct {
	pid            int
	accept, server netip.AddrPort
	client         net.Conn
}

// startTunnel starts stunnel with a rendered configuration and global options before it.
func startTunnel(t testing.TB, global string) *runningTunnel {
	t.Helper()
	program := stunneltest.Path(t)
	features, err := supervise.QueryFeatures(t.Context(), program, false)
	if err != nil {
		t.Fatal(err)
	}
	tunnel := plain()
	authority := stunneltest.NewAuthority(t)
	server := stunneltest.Serve(t, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.Valid(t, tunnel.CheckHost)}}, nil)
	tunnel.Accept, tunnel.CAFile = stunneltest.FreePort(t, "127.0.0.1"), authority.File
	tunnel.Connect = []netip.AddrPort{server.Address}
	s := &runningTunnel{accept: tunnel.Accept, server: server.Address}
	s.start(t, program, global, render(t, tunnel, features))
	if s.client, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", tunnel.Accept.String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close() })
	return s
}

func render(t testing.TB, tunnel tunnelspec.Tunnel, features stunnelcfg.Features) string {
	t.Helper()
	config, err := stunnelcfg.Render(tunnel, features, false)
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// start has stunnel take over a listener, as the supervisor has it.
func (s *runningTunnel) start(t testing.TB, program, global, config string) {
	t.Helper()
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.accept))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	file := filepath.Join(t.TempDir(), "stunnel.conf")
	if err := os.WriteFile(file, []byte(global+config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" "$1"`, program, file)
	cmd.ExtraFiles = []*os.File{socket}
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may have ended
		_ = cmd.Wait()
	})
	s.pid = cmd.Process.Pid
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Accepting new connections") {
			go func() { _, _ = io.Copy(io.Discard, log) }() // or stunnel waits for a reader of its log
			return
		}
	}
	t.Fatalf("stunnel ended with the configuration\n%s", global+config)
}

// exchange sends requests through the tunnel one after another, each when the one before was answered.
func (s *runningTunnel) exchange(t *testing.T, times int) {
	t.Helper()
	request := make([]byte, smallRequest)
	for range times {
		exchange(t, s.client, request)
	}
}

// exchange sends a request to a server that echoes, and returns how long the answer took.
func exchange(t testing.TB, conn net.Conn, request []byte) time.Duration {
	t.Helper()
	begin := time.Now()
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, request); err != nil {
		t.Fatal(err)
	}
	return time.Since(begin)
}

// BenchmarkRequest has a request and its answer through stunnel, and in turns without stunnel and TLS, on the machine
// itself, while the nodes of a lab may be emulated.
func BenchmarkRequest(b *testing.B) {
	for _, size := range []int{smallRequest, 4 << 10, 8 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			tunnel, plain, request := startTunnel(b, "").client, echoing(b), make([]byte, size)
			exchange(b, tunnel, request) // the connections are there
			exchange(b, plain, request)
			var throughTunnel, without []time.Duration
			for b.Loop() {
				throughTunnel = append(throughTunnel, exchange(b, tunnel, request))
				without = append(without, exchange(b, plain, request))
			}
			for name, all := range map[string][]time.Duration{"tunnel": throughTunnel, "plain": without} {
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2].Seconds()*1e6, "µs-p50-"+name)
				b.ReportMetric(all[len(all)*99/100].Seconds()*1e6, "µs-p99-"+name)
			}
		})
	}
}

// echoing returns a connection to a server without TLS that echoes.
func echoing(b *testing.B) net.Conn {
	b.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.Copy(conn, io.MultiReader(conn)) // as the server with TLS does, not in the kernel
			_ = conn.Close()
		}
	}()
	conn, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return conn
}

// noDelay returns whether stunnel's sockets to the kernel's client and to the server have TCP_NODELAY.
func (s *runningTunnel) noDelay(t *testing.T) map[string]bool {
	t.Helper()
	process, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		number, err := strconv.Atoi(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.look(process, number, found); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// look records the option of one of stunnel's files if it is a connected socket.
func (s *runningTunnel) look(process, number int, found map[string]bool) error {
	socket, err := unix.PidfdGetfd(process, number, 0)
	if errors.Is(err, unix.EBADF) {
		return nil // closed meanwhile
	}
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	peer, err := unix.Getpeername(socket)
	if err != nil {
		return nil // no socket, or one that listens
	}
	address, ok := peer.(*unix.SockaddrInet4)
	if !ok {
		return nil
	}
	option, err := unix.GetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_NODELAY)
	switch netip.AddrPortFrom(netip.AddrFrom4(address.Addr), uint16(address.Port)) {
	case s.server:
		found["server"] = option != 0
	case netip.MustParseAddrPort(s.client.LocalAddr().String()):
		found["kernel"] = option != 0
	}
	return err
}
