package supervise_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// Nothing survives the supervisor, even when it has no chance to end its processes.
func TestKilledSupervisorLeavesNoProcess(t *testing.T) {
	w := newWorld(t)
	var pids []int
	supervisor := w.superviseApart()
	for i := range 5 {
		name := fmt.Sprintf("fs-%d", i)
		tunnel := w.tunnel(name, w.server().Address)
		pids = append(pids, w.serving(name, w.write(tunnel)).PID)
		w.echo(w.dial(tunnel.Accept))
	}
	if err := supervisor.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.poll("no process is left", func() bool { return !anyAlive(pids) }, func() any { return pids })
}

func anyAlive(pids []int) bool {
	return slices.ContainsFunc(pids, isAlive)
}

func TestTerminatedSupervisorEndsItsProcesses(t *testing.T) {
	w := newWorld(t)
	supervisor := w.superviseApart()
	tunnel := w.tunnel("fs-1", w.server().Address)
	pid := w.serving("fs-1", w.write(tunnel)).PID
	began := time.Now()
	if err := supervisor.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := supervisor.Wait(); err != nil {
		t.Errorf("the supervisor ended with %v, want exit code 0", err)
	}
	if took := time.Since(began); took > patience/2 || isAlive(pid) {
		t.Errorf("it took %s, and the process lives: %v", took, isAlive(pid))
	}
}

// A new supervisor begins with the files as they are; what the old one left is in nobody's way.
func TestSupervisorStartedAgain(t *testing.T) {
	w := newWorld(t)
	tunnel := w.tunnel("fs-1", w.server().Address)
	generation := w.write(tunnel)
	first := w.superviseApart()
	began := w.serving("fs-1", generation)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	w.superviseApart()
	w.until("fs-1", "is another process", func(s supervise.Tunnel) bool { return s.Listening && s.PID != began.PID })
	w.echo(w.dial(tunnel.Accept))
}

// script makes a program that answers questions as stunnel does and then runs shell commands in
// its place; $1 is the configuration file.
func (w *world) script(commands string) {
	w.Helper()
	path := filepath.Join(w.TempDir(), "stunnel")
	text := "#!/bin/sh\ncase $1 in -*) exec " + w.program + " \"$@\";; esac\n" + commands + "\n"
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		w.Fatal(err)
	}
	w.program = path
}

func TestCrashLoopSlowsDown(t *testing.T) {
	w := newWorld(t)
	counter := filepath.Join(t.TempDir(), "starts")
	w.script("echo >> " + counter + "; echo 'no such library' >&2; exit 127")
	w.write(w.tunnel("fs-1", w.server().Address))
	began := time.Now()
	w.supervise()
	// At once, at once again, after 0.5 s and after 1 s more.
	s := w.until("fs-1", "has died four times", func(s supervise.Tunnel) bool { return s.Problems[supervise.ReasonDied] >= 4 })
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("four deaths in %s, want at least 1.5 s between the first and the last", took)
	}
	if s.State != supervise.StateWaiting || !strings.Contains(s.Process.Words, "exit status 127") {
		t.Errorf("got %+v, want it waiting, and how it died", s)
	}
	if lines := w.log.lines("no such library", "fileSystem=fs-1"); len(lines) < 4 {
		t.Errorf("got %d lines with its last words, want one for each", len(lines))
	}
	starts, err := os.ReadFile(counter)
	if err != nil || len(starts) > 5 {
		t.Errorf("got %d starts and %v, want no more than were counted", len(starts), err)
	}
}

// One that ignores SIGTERM is killed after its grace.
func TestStubbornProcessIsKilled(t *testing.T) {
	w := newWorld(t)
	w.script(`trap '' TERM HUP
echo "2026.01.02 03:04:05 LOG5[ui]: Configuration successful"
echo "2026.01.02 03:04:05 LOG6[ui]: Service [x] (FD=1) bound to 127.0.0.1:1"
echo "2026.01.02 03:04:05 LOG6[ui]: Accepting new connections"
while :; do sleep 1; done`)
	generation := w.write(w.tunnel("fs-1", w.server().Address))
	w.supervise()
	pid := w.serving("fs-1", generation).PID
	if err := w.dir.Remove("fs-1"); err != nil {
		t.Fatal(err)
	}
	w.until("fs-1", "stops", func(s supervise.Tunnel) bool { return s.State == supervise.StateStopping })
	w.until("fs-1", "is forgotten", func(s supervise.Tunnel) bool { return s.State == "" })
	if isAlive(pid) {
		t.Error("it lives")
	}
	if len(w.log.lines("killing it")) == 0 {
		t.Error("the log does not say that it was killed")
	}
}

// The first process of a container gets the children of others; those that end are waited for.
func TestOrphansAreReaped(t *testing.T) {
	w := newWorld(t)
	// Each start leaves a child, whose parent ends before it.
	hold := filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.script(`(while [ -e ` + hold + ` ]; do sleep 0.1; done & ) ; exec ` + w.program + ` "$@"`)
	supervisor := w.superviseApart()
	pid := w.serving("fs-1", w.write(w.tunnel("fs-1", w.server().Address))).PID
	children := func() []int { return childrenOf(t, supervisor.Process.Pid) }
	last := func() any { return children() }
	w.poll("the orphan is adopted", func() bool { return len(children()) > 1 }, last)
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	w.poll("only stunnel is left", func() bool { return slices.Equal(children(), []int{pid}) }, last)
}
