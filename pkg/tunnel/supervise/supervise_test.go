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

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

func TestStartReloadStop(t *testing.T) {
	w := newWorld(t)
	first, second := w.server(), w.server()
	tunnel := w.tunnel("fs-1", first.Address)
	generation := w.write(tunnel)
	w.supervise()

	began := w.serving("fs-1", generation)
	old := w.dial(tunnel.Accept)
	w.echo(old)
	w.until("fs-1", "names the server", func(s supervise.Tunnel) bool { return s.Remote == first.Address.String() })

	tunnel.Connect[0] = second.Address
	reloaded := w.serving("fs-1", w.write(tunnel))
	if reloaded.PID != began.PID || reloaded.Reloads != 1 || reloaded.Restarts != 0 {
		t.Errorf("got %+v after %+v, want the same process, reloaded once", reloaded, began)
	}
	w.echo(old)
	w.echo(w.dial(tunnel.Accept))
	if first.Connections.Load() != 1 || second.Connections.Load() != 1 {
		t.Errorf("got %d and %d connections, want one before and one after", first.Connections.Load(), second.Connections.Load())
	}

	if err := w.dir.Remove("fs-1"); err != nil {
		t.Fatal(err)
	}
	w.until("fs-1", "is forgotten", func(s supervise.Tunnel) bool { return s.State == "" })
	if isAlive(began.PID) {
		t.Error("stunnel lives without its file")
	}
	w.end()
	entries, err := os.ReadDir(strings.TrimSuffix(w.prefix, "/stunnel.conf"))
	if err != nil || len(entries) != 0 {
		t.Errorf("got %v and %v, want nothing left behind", entries, err)
	}
}

func TestRestartSerial(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	began := w.serving("fs-1", generation)
	conn := w.dial(tunnel.Accept)
	w.echo(conn)

	tunnel.Restart++
	restarted := w.serving("fs-1", w.write(tunnel))
	if restarted.PID == began.PID || restarted.Restarts != 1 || restarted.Process != nil {
		t.Errorf("got %+v after %+v, want another process and no problem", restarted, began)
	}
	if err := roundTrip(conn, "x"); err == nil {
		t.Error("the old connection lives; it was to begin anew")
	}
	w.echo(w.dial(tunnel.Accept))
}

func TestEqualBytesDoNothing(t *testing.T) {
	w := newWorld(t)
	tunnel, other := w.tunnel("fs-1", w.server().Address), w.tunnel("fs-2", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)
	text, err := w.dir.Read("fs-1")
	if err != nil {
		t.Fatal(err)
	}
	// Not through confdir, which would not write equal bytes.
	if err := os.WriteFile(w.prefix+"-tunnel.fs-1.json", text, 0o600); err != nil {
		t.Fatal(err)
	}
	w.serving("fs-2", w.write(other)) // has been read after that
	if s := w.status("fs-1"); s.Reloads != 0 || s.Restarts != 0 {
		t.Errorf("got %+v, want neither reload nor restart", s)
	}
}

func TestBurstOfRewrites(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)
	began := time.Now()
	for i := range 50 {
		tunnel.Connect = append(tunnel.Connect[:1:1], netip.AddrPortFrom(tunnel.Connect[0].Addr(), uint16(1+i)))
		generation = w.write(tunnel)
	}
	s := w.serving("fs-1", generation)
	// Each window, of 20 ms, gathers what falls into it.
	if most := 2 + int(time.Since(began)/(20*time.Millisecond)); s.Reloads < 1 || s.Reloads > most {
		t.Errorf("got %d reloads for 50 changes in %s", s.Reloads, time.Since(began))
	}
}

func TestDiedComesBackAtOnce(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	began := w.serving("fs-1", generation)
	if err := syscall.Kill(began.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	again := w.until("fs-1", "is back", func(s supervise.Tunnel) bool { return s.Listening && s.PID != began.PID })
	t.Logf("listening %s after the kill", time.Since(killed))
	if again.Restarts != 1 || again.Problems[supervise.ReasonDied] != 1 {
		t.Errorf("got %+v, want one restart after one death", again)
	}
	w.echo(w.dial(tunnel.Accept))
	if lines := w.log.lines("stunnel died", "fileSystem=fs-1", "signal: killed"); len(lines) != 1 {
		t.Errorf("got %q, want one line that says how it died", lines)
	}
}

func TestStatusFileGoesWithTheSupervisor(t *testing.T) {
	w := newWorld(t)
	w.supervise()
	w.poll("status", func() bool { _, err := supervise.ReadStatus(w.dir); return err == nil }, func() any { return nil })
	status, err := supervise.ReadStatus(w.dir)
	if err != nil || status.PID != os.Getpid() || status.Stunnel.Version == "" || time.Since(status.StartedAt) > patience {
		t.Errorf("got %+v and %v", status, err)
	}
	w.end()
	if _, err := supervise.ReadStatus(w.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no status of a supervisor that has ended", err)
	}
}

// What cannot be read is not gone.
func TestUnreadableFolderKeepsTunnels(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	began := w.serving("fs-1", generation)
	folder := filepath.Dir(w.prefix)
	if err := os.Rename(folder, folder+"-away"); err != nil {
		t.Fatal(err)
	}
	w.poll("the log tells", func() bool { return len(w.log.lines("folder of specifications cannot be read")) > 0 }, func() any { return nil })
	w.echo(w.dial(tunnel.Accept))
	if err := os.Rename(folder+"-away", folder); err != nil {
		t.Fatal(err)
	}
	tunnel.Connect = append(tunnel.Connect, tunnel.Connect[0])
	if after := w.serving("fs-1", w.write(tunnel)); after.PID != began.PID {
		t.Errorf("got %+v after %+v, want the same process", after, began)
	}
}
