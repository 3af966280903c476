package supervise_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
)

func TestStartReloadStop(t *testing.T) {
	h := newHarness(t)
	first, second := h.startServer(), h.startServer()
	tunnel := h.newTunnel("fs-1", first.Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()

	began := h.waitServing("fs-1", generation)
	old := h.dial(tunnel.Accept)
	h.checkEcho(old)
	h.waitFor("fs-1", "reports the server", func(s tunnelspec.TunnelStatus) bool { return s.Remote == first.Address })

	tunnel.Connect[0] = second.Address
	reloaded := h.waitServing("fs-1", h.writeSpec(tunnel))
	if reloaded.PID != began.PID || reloaded.Reloads != 1 || reloaded.Restarts != 0 {
		t.Errorf("got %+v after %+v, want the same process, reloaded once", reloaded, began)
	}
	h.checkEcho(old)
	h.checkEcho(h.dial(tunnel.Accept))
	if first.Connections.Load() != 1 || second.Connections.Load() != 1 {
		t.Errorf("got %d and %d connections, want one before and one after the reload", first.Connections.Load(), second.Connections.Load())
	}

	if err := h.dir.Remove("fs-1"); err != nil {
		t.Fatal(err)
	}
	h.waitFor("fs-1", "is removed", func(s tunnelspec.TunnelStatus) bool { return s.State == "" })
	if isAlive(began.PID) {
		t.Error("stunnel still runs without a specification")
	}
	h.stopSupervisor()
	entries, err := os.ReadDir(strings.TrimSuffix(h.prefix, "/stunnel.conf"))
	if err != nil || len(entries) != 0 {
		t.Errorf("got %v and %v, want an empty directory", entries, err)
	}
}

func TestChangedSerialRestartsStunnel(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	began := h.waitServing("fs-1", generation)
	conn := h.dial(tunnel.Accept)
	h.checkEcho(conn)

	tunnel.Restart++
	restarted := h.waitServing("fs-1", h.writeSpec(tunnel))
	if restarted.PID == began.PID || restarted.Restarts != 1 || restarted.Process != nil {
		t.Errorf("got %+v after %+v, want another process and no problem", restarted, began)
	}
	if err := roundTrip(conn, "x"); err == nil {
		t.Error("the old connection is still open")
	}
	h.checkEcho(h.dial(tunnel.Accept))
}

func TestRewrittenSpecificationIsIgnored(t *testing.T) {
	h := newHarness(t)
	tunnel, other := h.newTunnel("fs-1", h.startServer().Address), h.newTunnel("fs-2", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	text, err := h.dir.Spec("fs-1").Read()
	if err != nil {
		t.Fatal(err)
	}
	// confdir would not write equal bytes.
	if err := os.WriteFile(h.prefix+"-tunnel.fs-1.json", text, 0o600); err != nil {
		t.Fatal(err)
	}
	h.waitServing("fs-2", h.writeSpec(other)) // the supervisor reads it after fs-1
	if s := h.status("fs-1"); s.Reloads != 0 || s.Restarts != 0 {
		t.Errorf("got %+v, want neither reload nor restart", s)
	}
}

func TestBurstOfChangesIsCoalesced(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	began := time.Now()
	for i := range 50 {
		tunnel.Connect = append(tunnel.Connect[:1:1], netip.AddrPortFrom(tunnel.Connect[0].Addr(), uint16(1+i)))
		generation = h.writeSpec(tunnel)
	}
	s := h.waitServing("fs-1", generation)
	// One scan reads the changes of 20 ms.
	if limit := 2 + int(time.Since(began)/(20*time.Millisecond)); s.Reloads < 1 || s.Reloads > limit {
		t.Errorf("got %d reloads for 50 changes in %s, want 1 to %d", s.Reloads, time.Since(began), limit)
	}
}

func TestKilledStunnelRestartsAtOnce(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	began := h.waitServing("fs-1", generation)
	if err := syscall.Kill(began.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	again := h.waitFor("fs-1", "listens with another process", func(s tunnelspec.TunnelStatus) bool { return s.Listening && s.PID != began.PID })
	t.Logf("listening %s after the kill", time.Since(killed))
	if again.Restarts != 1 || again.Problems[tunnelspec.ReasonDied] != 1 {
		t.Errorf("got %+v, want one restart after one death", again)
	}
	h.checkEcho(h.dial(tunnel.Accept))
	if lines := h.log.lines("stunnel exited unexpectedly", "fileSystem=fs-1", "signal: killed"); len(lines) != 1 {
		t.Errorf("got %q, want one line with the signal", lines)
	}
}

func TestShutdownRemovesStatusFile(t *testing.T) {
	h := newHarness(t)
	h.startSupervisor()
	h.poll("the status is readable", func() bool { _, err := supervise.ReadStatus(h.dir); return err == nil }, func() any { return nil })
	status, err := supervise.ReadStatus(h.dir)
	if err != nil || status.PID != os.Getpid() || status.Stunnel == "" || time.Since(status.StartedAt) > testTimeout {
		t.Errorf("got %+v and %v", status, err)
	}
	h.stopSupervisor()
	if _, err := supervise.ReadStatus(h.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no status after the shutdown", err)
	}
}

// TestTunnelMissingInTheListingStays: the listing leaves out symbolic links. It stands for one that misses
// a file which is replaced meanwhile.
func TestTunnelMissingInTheListingStays(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	began := h.waitServing("fs-1", generation)
	tunnel.Connect = append(tunnel.Connect, tunnel.Connect[0])
	text, err := tunnelspec.Encode(tunnel)
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(t.TempDir(), "spec"), h.prefix+".link"
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.Symlink(file, link), os.Rename(link, h.dir.Spec("fs-1").Path())); err != nil {
		t.Fatal(err)
	}
	if after := h.waitServing("fs-1", tunnelspec.Generation(text)); after.PID != began.PID {
		t.Errorf("got %+v after %+v, want the same process", after, began)
	}
}

func TestUnreadableDirectoryKeepsTunnels(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	began := h.waitServing("fs-1", generation)
	folder := filepath.Dir(h.prefix)
	if err := os.Rename(folder, folder+"-away"); err != nil {
		t.Fatal(err)
	}
	h.poll("the error is logged", func() bool { return len(h.log.lines("listing specifications failed")) > 0 }, func() any { return nil })
	h.checkEcho(h.dial(tunnel.Accept))
	if err := os.Rename(folder+"-away", folder); err != nil {
		t.Fatal(err)
	}
	tunnel.Connect = append(tunnel.Connect, tunnel.Connect[0])
	if after := h.waitServing("fs-1", h.writeSpec(tunnel)); after.PID != began.PID {
		t.Errorf("got %+v after %+v, want the same process", after, began)
	}
}
