package supervise_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

func isBadConfig(s supervise.Tunnel) bool {
	return s.Process != nil && s.Process.Reason == supervise.ReasonBadConfig
}

// What stunnel refuses changes nothing, not even when the process dies beside it.
func TestBadConfigKeepsTheLastGoodOne(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s *spec.Tunnel){
		"missing roots": func(_ *testing.T, s *spec.Tunnel) { s.CAFile += ".nobody" },
		"no roots":      func(t *testing.T, s *spec.Tunnel) { s.CAFile = nonsense(t) },
		"other serial, too": func(_ *testing.T, s *spec.Tunnel) {
			s.Restart++
			s.CAFile += ".nobody"
		},
		"no certificate": func(t *testing.T, s *spec.Tunnel) {
			s.Cert, s.Key, s.CertSum = nonsense(t), nonsense(t), strings.Repeat("0", 64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tunnel := w.tunnel("fs-1", w.server().Address)
			generation := w.write(tunnel)
			w.supervise()
			w.serving("fs-1", generation)

			spoilt := tunnel
			spoil(t, &spoilt)
			w.write(spoilt)
			// Another serial has the process restarted, and the new one refuses.
			bad := w.until("fs-1", "refuses and serves", func(s supervise.Tunnel) bool {
				return isBadConfig(s) && s.State == supervise.StateRunning && s.Listening
			})
			if bad.Generation != generation || bad.Process.Words == "" {
				t.Errorf("got %+v, want the last good configuration and stunnel's words", bad)
			}
			w.echo(w.dial(tunnel.Accept))

			if err := syscall.Kill(bad.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			again := w.until("fs-1", "is back", func(s supervise.Tunnel) bool {
				return s.State == supervise.StateRunning && s.Listening && s.PID != bad.PID
			})
			if again.Generation != generation {
				t.Errorf("got %+v, want the last good configuration", again)
			}
			w.echo(w.dial(tunnel.Accept))

			w.write(tunnel)
			w.until("fs-1", "has no problem", func(s supervise.Tunnel) bool { return s.Process == nil })
		})
	}
}

// nonsense is a file in which nothing is that anybody wants.
func nonsense(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nonsense.pem")
	if err := os.WriteFile(file, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestUnreadableSpecificationChangesNothing: only a mistake of ours could write one.
func TestUnreadableSpecificationChangesNothing(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	w.supervise()
	began := w.serving("fs-1", generation)
	for _, text := range []string{"", "{", `{"name":"fs-1"}`, "null"} {
		w.writeBytes("fs-1", []byte(text))
	}
	other := w.tunnel("fs-2", w.server().Address)
	w.serving("fs-2", w.write(other))
	if s := w.serving("fs-1", generation); s.PID != began.PID || s.Reloads != 0 {
		t.Errorf("got %+v, want it as it was", s)
	}
	if len(w.log.lines("level=ERROR", "specification cannot be read", "fileSystem=fs-1")) == 0 {
		t.Error("the log does not tell")
	}
}

// A first configuration may become good without being written again.
func TestBadConfigAtStart(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	later := filepath.Join(t.TempDir(), "later.pem")
	roots, err := os.ReadFile(tunnel.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	tunnel.CAFile = later
	generation := w.write(tunnel)
	w.supervise()
	// Mounts are to fail with a reason, and not to wait for a process that cannot start.
	s := w.until("fs-1", "refuses, and lets go of its port", func(s supervise.Tunnel) bool { return isBadConfig(s) && !s.Listening })
	if s.State != supervise.StateFailed || !strings.Contains(s.Process.Words, "No trusted certificates found") {
		t.Errorf("got %+v, want it failed, with stunnel's words", s)
	}
	// Which do not name the file.
	want := "CAfile " + later + ": no such file in the supervisor's container; mount it into supervisor and agent"
	if !strings.Contains(s.Process.Words, want) || len(w.log.lines("level=ERROR", want)) == 0 {
		t.Errorf("got %q, want %q there and in the log", s.Process.Words, want)
	}
	if err := os.WriteFile(later, roots, 0o600); err != nil {
		t.Fatal(err)
	}
	w.serving("fs-1", generation)
	w.echo(w.dial(tunnel.Accept))
}
