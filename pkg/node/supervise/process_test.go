package supervise_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

func TestKilledSupervisorLeavesNoProcessAndNextOneServes(t *testing.T) {
	h := newHarness(t)
	var pids []int
	var tunnel tunnelspec.Tunnel
	supervisor := h.startSupervisorProcess()
	for i := range 5 {
		name := fmt.Sprintf("fs-%d", i)
		tunnel = h.newTunnel(name, h.startServer().Address)
		pids = append(pids, h.waitServing(name, h.writeSpec(tunnel)).PID)
		h.checkEcho(h.dial(tunnel.Accept))
	}
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = supervisor.Wait() // killed
	h.startSupervisorProcess()
	h.poll("all stunnel processes have exited", func() bool { return !slices.ContainsFunc(pids, isAlive) }, func() any { return pids })
	h.waitFor(tunnel.Name, "has another process", func(s tunnelspec.TunnelStatus) bool { return s.Listening && s.PID != pids[len(pids)-1] })
	h.checkEcho(h.dial(tunnel.Accept))
}

// useScript replaces stunnel by a program that answers queries as stunnel does, and otherwise runs
// shell commands. $1 is the configuration file.
func (h *harness) useScript(commands string) {
	h.Helper()
	path := filepath.Join(h.TempDir(), "stunnel")
	text := "#!/bin/sh\ncase $1 in -*) exec " + h.program + " \"$@\";; esac\n" + commands + "\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		h.Fatal(err)
	}
	h.program = path
}

func TestCrashLoopBacksOff(t *testing.T) {
	h := newHarness(t)
	counter := filepath.Join(t.TempDir(), "starts")
	h.useScript("echo >> " + counter + "; echo 'no such library' >&2; exit 127")
	h.writeSpec(h.newTunnel("fs-1", h.startServer().Address))
	began := time.Now()
	h.startSupervisor()
	// The delays before the four starts are 0, 0, 0.5 and 1 s.
	s := h.waitFor("fs-1", "has died four times", func(s tunnelspec.TunnelStatus) bool { return s.Problems[tunnelspec.ReasonDied] >= 4 })
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("four deaths in %s, want at least 1.5 s between the first and the last", took)
	}
	if s.State != tunnelspec.StateWaiting || !strings.Contains(s.Process.Message, "exit status 127") {
		t.Errorf("got %+v, want state waiting with the exit status", s)
	}
	if lines := h.log.lines("no such library", "fileSystem=fs-1"); len(lines) < 4 {
		t.Errorf("got %d lines with its output, want one for each death", len(lines))
	}
	starts, err := os.ReadFile(counter)
	if err != nil || len(starts) > 5 {
		t.Errorf("got %d starts and %v, want at most 5", len(starts), err)
	}
}

func TestProcessThatIgnoresSIGTERMIsKilled(t *testing.T) {
	h := newHarness(t)
	h.useScript(`trap '' TERM HUP
echo "2026.01.02 03:04:05 LOG5[ui]: Configuration successful"
echo "2026.01.02 03:04:05 LOG6[ui]: Service [x] (FD=1) bound to 127.0.0.1:1"
echo "2026.01.02 03:04:05 LOG6[ui]: Accepting new connections"
while :; do sleep 1; done`)
	generation := h.writeSpec(h.newTunnel("fs-1", h.startServer().Address))
	h.startSupervisor()
	pid := h.waitServing("fs-1", generation).PID
	if err := h.dir.Remove("fs-1"); err != nil {
		t.Fatal(err)
	}
	h.waitFor("fs-1", "stops", func(s tunnelspec.TunnelStatus) bool { return s.State == tunnelspec.StateStopping })
	h.waitFor("fs-1", "is removed", func(s tunnelspec.TunnelStatus) bool { return s.State == "" })
	if isAlive(pid) {
		t.Error("stunnel still runs")
	}
	if len(h.log.lines("killing it")) == 0 {
		t.Error("no log line about the kill")
	}
}

// TestOrphansAreReaped has the supervisor as subreaper, like the first process of a container.
func TestOrphansAreReaped(t *testing.T) {
	h := newHarness(t)
	// Each start leaves an orphan, which exits when the file is removed.
	hold := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.useScript(`(while [ -e ` + hold + ` ]; do sleep 0.1; done & ) ; exec ` + h.program + ` "$@"`)
	supervisor := h.startSupervisorProcess()
	pid := h.waitServing("fs-1", h.writeSpec(h.newTunnel("fs-1", h.startServer().Address))).PID
	children := func() []int { return childPIDs(t, supervisor.Process.Pid) }
	last := func() any { return children() }
	h.poll("the orphan is adopted", func() bool { return len(children()) > 1 }, last)
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	h.poll("stunnel is the only child", func() bool { return slices.Equal(children(), []int{pid}) }, last)
}
