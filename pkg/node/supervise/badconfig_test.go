package supervise_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

func isBadConfig(s tunnelspec.TunnelStatus) bool {
	return s.Process != nil && s.Process.Reason == tunnelspec.ReasonBadConfig
}

// TestRefusedConfigKeepsLastGoodOne kills stunnel, too, after it has refused the configuration.
func TestRefusedConfigKeepsLastGoodOne(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, s *tunnelspec.Tunnel){
		"missing roots":    func(_ *testing.T, s *tunnelspec.Tunnel) { s.CAFile += ".missing" },
		"roots not in PEM": func(t *testing.T, s *tunnelspec.Tunnel) { s.CAFile = invalidFile(t) },
		"missing roots and other serial": func(_ *testing.T, s *tunnelspec.Tunnel) {
			s.Restart++
			s.CAFile += ".missing"
		},
		"certificate not in PEM": func(t *testing.T, s *tunnelspec.Tunnel) {
			s.Cert, s.Key, s.CertSum = invalidFile(t), invalidFile(t), strings.Repeat("0", 64)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			tunnel := h.newTunnel("fs-1", h.startServer().Address)
			generation := h.writeSpec(tunnel)
			h.startSupervisor()
			h.waitServing("fs-1", generation)

			invalid := tunnel
			change(t, &invalid)
			h.writeSpec(invalid)
			// With another serial, stunnel is restarted first, and the new process refuses.
			bad := h.waitFor("fs-1", "serves after the refusal", func(s tunnelspec.TunnelStatus) bool {
				return isBadConfig(s) && s.State == tunnelspec.StateRunning && s.Listening
			})
			if bad.Generation != generation || bad.Process.Message == "" {
				t.Errorf("got %+v, want the last good configuration and stunnel's message", bad)
			}
			h.checkEcho(h.dial(tunnel.Accept))

			if err := syscall.Kill(bad.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			again := h.waitFor("fs-1", "serves with another process", func(s tunnelspec.TunnelStatus) bool {
				return s.State == tunnelspec.StateRunning && s.Listening && s.PID != bad.PID
			})
			if again.Generation != generation {
				t.Errorf("got %+v, want the last good configuration", again)
			}
			h.checkEcho(h.dial(tunnel.Accept))

			h.writeSpec(tunnel)
			h.waitFor("fs-1", "has no problem", func(s tunnelspec.TunnelStatus) bool { return s.Process == nil })
		})
	}
}

// invalidFile writes a file that is not in PEM.
func invalidFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "invalid.pem")
	if err := os.WriteFile(file, []byte("not PEM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestInvalidSpecificationKeepsTunnel(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	began := h.waitServing("fs-1", generation)
	for _, text := range []string{"", "{", `{"name":"fs-1"}`, "null"} {
		h.writeSpecBytes("fs-1", []byte(text))
	}
	other := h.newTunnel("fs-2", h.startServer().Address)
	h.waitServing("fs-2", h.writeSpec(other))
	if s := h.waitServing("fs-1", generation); s.PID != began.PID || s.Reloads != 0 {
		t.Errorf("got %+v, want the same process without a reload", s)
	}
	if len(h.log.lines("level=ERROR", "reading the specification failed", "fileSystem=fs-1")) == 0 {
		t.Error("the error is not logged")
	}
}

// TestRefusedFirstConfigIsRetried creates the missing file later, without a change of the
// specification.
func TestRefusedFirstConfigIsRetried(t *testing.T) {
	h := newHarness(t)
	tunnel := h.newTunnel("fs-1", h.startServer().Address)
	later := filepath.Join(t.TempDir(), "later.pem")
	roots, err := os.ReadFile(tunnel.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	tunnel.CAFile = later
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	// With a closed port, mounts fail at once instead of waiting for a process that cannot start.
	s := h.waitFor("fs-1", "has closed the port after the refusal", func(s tunnelspec.TunnelStatus) bool { return isBadConfig(s) && !s.Listening })
	if s.State != tunnelspec.StateFailed || !strings.Contains(s.Process.Message, "No trusted certificates found") {
		t.Errorf("got %+v, want state failed with stunnel's message", s)
	}
	// The supervisor adds the name of the file, which stunnel's message lacks.
	want := "CAfile " + later + ": no such file in the supervisor's container; mount it into supervisor and agent"
	if !strings.Contains(s.Process.Message, want) || len(h.log.lines("level=ERROR", want)) == 0 {
		t.Errorf("got %q, want %q in it and in the log", s.Process.Message, want)
	}
	if err := os.WriteFile(later, roots, 0o600); err != nil {
		t.Fatal(err)
	}
	h.waitServing("fs-1", generation)
	h.checkEcho(h.dial(tunnel.Accept))
}
