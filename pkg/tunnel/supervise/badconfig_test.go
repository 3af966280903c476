package supervise_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

func isBadConfig(s supervise.Tunnel) bool {
	return s.Process != nil && s.Process.Reason == supervise.ReasonBadConfig
}

// A file that stunnel refuses changes nothing, not even when the process dies beside it.
func TestBadConfigKeepsTheLastGoodOne(t *testing.T) {
	for name, spoil := range map[string]func([]byte) []byte{
		"unknown option": func(c []byte) []byte { return append(c, "noSuchOption = yes\n"...) },
		"missing roots": func(c []byte) []byte {
			return bytes.Replace(c, []byte("authority.pem"), []byte("nobody.pem"), 1)
		},
		"other serial, too": func(c []byte) []byte {
			return append(bytes.Replace(c, []byte("; restart 0"), []byte("; restart 1"), 1), "noSuchOption = yes\n"...)
		},
		"empty": func([]byte) []byte { return []byte{} },
		"other port, too": func(c []byte) []byte {
			return append(bytes.Replace(c, []byte("accept = "+tunnelAddress), []byte("accept = 127.0.0.3"), 1), "noSuchOption = yes\n"...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tunnel := w.tunnel("fs-1", w.server().Address)
			generation := w.write(tunnel)
			w.supervise()
			w.serving("fs-1", generation)
			good, err := w.dir.Read("fs-1")
			if err != nil {
				t.Fatal(err)
			}

			w.writeBytes("fs-1", spoil(bytes.Clone(good)))
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

			w.writeBytes("fs-1", good)
			w.until("fs-1", "has no problem", func(s supervise.Tunnel) bool { return s.Process == nil })
		})
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
	s := w.until("fs-1", "refuses", isBadConfig)
	if s.State != supervise.StateFailed || s.Listening || !strings.Contains(s.Process.Words, "No trusted certificates found") {
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
