package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/fdstore"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/test/support/loggingtest"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

// A node of a large account: every file system or access point has a tunnel, few are used.
const (
	usedTunnels   = 5
	measuringTime = 30 * time.Second // three writes of the status, and a garbage collection
)

// TestMemoryOfUnusedTunnels bounds the memory of a node with many tunnels, of which it uses few.
func TestMemoryOfUnusedTunnels(t *testing.T) {
	stunneltest.SkipUnlessLong(t)
	for name, tt := range map[string]struct {
		tunnels   int
		pattern   string // of their names
		maxMemory int
	}{
		"1,000 file systems":  {1000, "fs-%017x", 40 << 20},
		"1,000 access points": {1000, "fs-0123456789abcdef0.fsap-%017x", 40 << 20},
		"5,000 access points": {5000, "fs-0123456789abcdef0.fsap-%017x", 80 << 20},
	} {
		t.Run(name, func(t *testing.T) { testMemory(t, tt.tunnels, tt.pattern, tt.maxMemory) })
	}
}

func testMemory(t *testing.T, allTunnels int, pattern string, maxMemory int) {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "s.conf")
	dir, err := confdir.Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { stored <- fdstore.Serve(ctx, dir.StoreSocket(), slog.New(slog.DiscardHandler)) }()
	defer func() {
		cancel()
		if err := <-stored; err != nil {
			t.Error(err)
		}
	}()
	ports := writeTunnels(t, dir, allTunnels, pattern)
	supervisor := startProgram(t, prefix)
	status := waitForStatus(t, dir, func(s tunnelspec.Status) bool { return countInState(s, tunnelspec.StateIdle) == allTunnels })
	t.Logf("no tunnel is used: %s", measure(t, supervisor, status))
	for _, port := range ports[:usedTunnels] {
		openConnection(t, port)
	}
	status = waitForStatus(t, dir, func(s tunnelspec.Status) bool { return countInState(s, tunnelspec.StateRunning) == usedTunnels })
	var peak memory
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(measuringTime); time.Now().Before(end); <-ticker.C {
		if m := measure(t, supervisor, status); m.sum() > peak.sum() {
			peak = m
		}
	}
	t.Logf("%d of %d tunnels are used: at most %s", usedTunnels, allTunnels, peak)
	if peak.sum() > maxMemory {
		t.Errorf("want at most %d MiB", maxMemory>>20)
	}
}

// writeTunnels writes specifications of tunnels to one echo server.
func writeTunnels(t *testing.T, dir confdir.Dir, count int, pattern string) []netip.AddrPort {
	t.Helper()
	const host = "fs-1.efs.us-east-1.amazonaws.com"
	authority := stunneltest.NewAuthority(t)
	server := stunneltest.Serve(t, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{authority.Valid(t, host)}}, nil)
	var ports []netip.AddrPort
	for i := range count {
		port := stunneltest.FreePort(t, "127.0.0.9")
		name := fmt.Sprintf(pattern, i)
		text, err := tunnelspec.Encode(tunnelspec.Tunnel{
			Name: name, Accept: port, Connect: []netip.AddrPort{server.Address}, CheckHost: host, CAFile: authority.File,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := dir.Spec(name).Write(text); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
	}
	return ports
}

// startProgram builds and starts the program as it is shipped, without the packages that tests link.
func startProgram(t *testing.T, prefix string) (pid int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "nodeagent-supervise")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var log loggingtest.Buffer
	cmd := exec.CommandContext(t.Context(), program, "--stunnel-conf", prefix, "--stunnel", stunneltest.Path(t))
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = testTimeout // a stunnel may have the output open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may have exited
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return cmd.Process.Pid
}

func waitForStatus(t *testing.T, dir confdir.Dir, ready func(tunnelspec.Status) bool) tunnelspec.Status {
	t.Helper()
	for deadline := time.Now().Add(10 * testTimeout); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if status, err := supervise.ReadStatus(dir); err == nil && ready(status) {
			return status
		}
	}
	t.Fatal("timed out waiting for the status of the tunnels")
	return tunnelspec.Status{}
}

func countInState(status tunnelspec.Status, state tunnelspec.State) int {
	count := 0
	for _, tunnel := range status.Tunnels {
		if tunnel.State == state && tunnel.Listening {
			count++
		}
	}
	return count
}

// openConnection echoes bytes through a tunnel and keeps the connection open.
func openConnection(t *testing.T, port netip.AddrPort) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", port.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	block := make([]byte, 64<<10)
	go func() { _, _ = conn.Write(block) }() // an error fails the read
	err = conn.SetReadDeadline(time.Now().Add(testTimeout))
	if _, readErr := io.ReadFull(conn, block); errors.Join(err, readErr) != nil {
		t.Fatalf("through the tunnel: %v", errors.Join(err, readErr))
	}
}

// memory holds proportional set sizes in bytes.
type memory struct{ supervisor, stunnels int }

func (m memory) sum() int { return m.supervisor + m.stunnels }

func (m memory) String() string {
	const mib = 1 << 20
	return fmt.Sprintf("%.1f MiB (supervisor %.1f MiB, stunnel processes %.1f MiB)",
		float64(m.sum())/mib, float64(m.supervisor)/mib, float64(m.stunnels)/mib)
}

func measure(t *testing.T, supervisor int, status tunnelspec.Status) memory {
	t.Helper()
	m := memory{supervisor: proportionalSize(t, supervisor)}
	for _, tunnel := range status.Tunnels {
		if tunnel.PID != 0 {
			m.stunnels += proportionalSize(t, tunnel.PID)
		}
	}
	return m
}

func proportionalSize(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if fields := strings.Fields(string(line)); len(fields) == 3 && fields[0] == "Pss:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("process %d has no proportional set size", pid)
	return 0
}
