package supervise

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/program/process"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// testConfig returns a specification with the fields that plan compares.
func testConfig(port uint16, serial int, host string) config {
	t := tunnelspec.Tunnel{Name: "fs-1", Accept: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), CheckHost: host, Restart: serial}
	return config{Tunnel: t, generation: fmt.Sprintf("%d %d %s", port, serial, host)}
}

// simulation drives a tunnel with a clock, without a process or a port.
type simulation struct {
	*tunnel
	now       time.Time
	portInUse bool // by another process
}

// newSimulation returns one whose process runs all the time.
func newSimulation(c config) *simulation { return newIdleSimulation(c, 0) }

func newIdleSimulation(c config, idle time.Duration) *simulation {
	s := &simulation{tunnel: newTunnel("fs-1", idle), now: epoch}
	s.setDesired(c)
	return s
}

func (s *simulation) advance(d time.Duration) *simulation { s.now = s.now.Add(d); return s }

// logs handles lines of stunnel's main thread. Those with "!" are errors.
func (s *simulation) logs(lines ...string) *simulation {
	for _, text := range lines {
		level := slog.LevelDebug
		if strings.HasPrefix(text, "!") {
			text, level = text[1:], slog.LevelError
		}
		s.handleLine(line{level, mainThread, text}, s.now)
	}
	return s
}

// connectsTo completes a handshake with a server.
func (s *simulation) connectsTo(server string) *simulation {
	for _, text := range []string{"s_connect: connected " + server, "TLS connected: new session negotiated"} {
		s.handleLine(line{slog.LevelDebug, "1", text}, s.now)
	}
	return s
}

// runSteps applies all steps that are due and returns their names.
func (s *simulation) runSteps() []string {
	names := map[verb]string{
		doRemove: "remove", doListen: "listen", doClosePort: "close port", doArm: "arm", doStart: "start", doReload: "reload",
		doAssumeReady: "assume ready", doStopIdle: "stop idle", doStop: "stop", doKill: "kill",
	}
	var done []string
	for range 20 {
		next := plan(s.tunnel, s.now)
		if next.verb == doNothing {
			if !next.at.IsZero() && !next.at.After(s.now) {
				done = append(done, "plan again in the past")
			}
			return done
		}
		done = append(done, names[next.verb])
		if next.verb == doRemove {
			return done
		}
		s.applyStep(next)
	}
	return append(done, "endless")
}

func (s *simulation) applyStep(next step) {
	switch next.verb {
	case doListen:
		if s.portInUse {
			s.portTaken("address already in use", s.now)
			return
		}
		s.socketOpened(&listener{address: s.tunnel.desired.Accept})
	case doClosePort:
		s.socketClosed()
	case doArm:
		s.armed = true
	case doStart:
		s.started(&os.Process{}, next.config, s.now)
	case doReload:
		s.reloading(next.config, s.now)
	case doAssumeReady:
		s.configApplied()
	case doStopIdle:
		s.stoppingIdle()
		s.stopping(stopGrace, s.now)
	case doStop, doKill:
		s.stopping(stopGrace, s.now)
	case doNothing, doRemove:
	}
}

func (s *simulation) wantSteps(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.runSteps()); diff != "" {
		t.Errorf("%s: steps mismatch (-want +got):\n%s", what, diff)
	}
}

// acceptsConfig completes a start or a reload.
func (s *simulation) acceptsConfig() *simulation {
	return s.logs("Configuration successful", "Service [fs-1] (FD=3) bound to 127.0.0.1:1", "Accepting new connections")
}

// newRunningSimulation returns a simulation of a tunnel that serves.
func newRunningSimulation(t *testing.T, c config) *simulation {
	t.Helper()
	s := newSimulation(c)
	s.wantSteps(t, "a new tunnel", "listen", "start")
	s.acceptsConfig().wantSteps(t, "a running tunnel")
	return s
}

func TestChangeDuringStartWaitsForSignalHandlers(t *testing.T) {
	s := newSimulation(testConfig(1, 0, ""))
	s.wantSteps(t, "a new tunnel", "listen", "start")
	s.setDesired(testConfig(1, 0, "changed"))
	s.wantSteps(t, "a change during the start")
	s.logs("Configuration successful", "Service [fs-1] (FD=3) bound to 127.0.0.1:1")
	s.wantSteps(t, "still starting")
	s.logs("Accepting new connections")
	s.wantSteps(t, "accepts connections", "reload")
}

func TestChangedSpecification(t *testing.T) {
	tests := map[string]struct {
		change config
		want   []string
	}{
		"unchanged":       {testConfig(1, 0, ""), nil},
		"option":          {testConfig(1, 0, "x"), []string{"reload"}},
		"serial":          {testConfig(1, 1, ""), []string{"stop"}},
		"serial and port": {testConfig(2, 1, ""), []string{"listen", "stop"}},
		"port":            {testConfig(2, 0, ""), []string{"listen", "stop"}},
		"removed":         {config{}, []string{"stop"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newRunningSimulation(t, testConfig(1, 0, ""))
			s.setDesired(tt.change)
			s.wantSteps(t, "the change", tt.want...)
			s.wantSteps(t, "planned again")
		})
	}
}

func TestStunnelRunsFromFirstConnectionUntilIdle(t *testing.T) {
	s := newIdleSimulation(testConfig(1, 0, ""), time.Minute)
	s.wantSteps(t, "a new tunnel", "listen", "arm")
	if s.state() != tunnelspec.StateIdle || s.status().Generation != "1 0 " {
		t.Errorf("got %+v, want state idle with the generation of the specification", s.status())
	}
	s.setDesired(testConfig(1, 0, "x"))
	s.wantSteps(t, "a change while idle")
	s.connectionWaiting()
	s.wantSteps(t, "a client connects", "start")
	s.acceptsConfig().wantSteps(t, "serves")
	s.updateIdle(1, true, s.now)
	s.advance(time.Hour).wantSteps(t, "in use")
	s.updateIdle(0, true, s.now)
	s.advance(time.Minute-1).wantSteps(t, "idle for less than the limit")
	s.updateIdle(1, true, s.now)
	s.updateIdle(0, true, s.now)
	s.advance(time.Minute-1).wantSteps(t, "idle for less than the limit again")
	s.advance(1).wantSteps(t, "idle", "stop idle")
	s.connectionWaiting()
	s.exited("exit status 0", s.now)
	s.wantSteps(t, "a client connects during the stop", "start")
	s.acceptsConfig()
	if s.reported.Restarts != 0 {
		t.Errorf("got %d restarts, want none", s.reported.Restarts)
	}
	s.updateIdle(0, true, s.now)
	s.updateIdle(0, false, s.now)
	s.advance(time.Hour).wantSteps(t, "clients unknown")
	s.updateIdle(0, true, s.now)
	s.advance(time.Minute).wantSteps(t, "idle", "stop idle")
	s.exited("exit status 0", s.now)
	s.wantSteps(t, "stopped", "arm")
}

func TestDeathWhileUsedCountsAsRestart(t *testing.T) {
	s := newIdleSimulation(testConfig(1, 0, ""), time.Minute)
	s.wantSteps(t, "a new tunnel", "listen", "arm")
	s.connectionWaiting()
	s.wantSteps(t, "a client connects", "start")
	s.acceptsConfig().exited("signal: killed", s.now)
	s.wantSteps(t, "dies", "start")
	if s.reported.Restarts != 1 {
		t.Errorf("got %d restarts, want one", s.reported.Restarts)
	}
}

func TestHangingStartOrReloadIsStopped(t *testing.T) {
	s := newSimulation(testConfig(1, 0, ""))
	s.wantSteps(t, "a new tunnel", "listen", "start")
	s.advance(answerTimeout-1).wantSteps(t, "before the timeout")
	s.advance(1).wantSteps(t, "after the timeout", "stop")
	s.advance(stopGrace).wantSteps(t, "does not exit", "kill")

	s = newRunningSimulation(t, testConfig(1, 0, ""))
	s.setDesired(testConfig(1, 0, "x"))
	s.wantSteps(t, "a change", "reload")
	s.advance(answerTimeout).wantSteps(t, "no answer", "stop")
	s.exited("signal: terminated", s.now)
	s.wantSteps(t, "exited", "start")
}

func TestStunnelWithoutReadyLineIsAssumedReady(t *testing.T) {
	s := newSimulation(testConfig(1, 0, ""))
	s.wantSteps(t, "a new tunnel", "listen", "start")
	s.logs("Configuration successful").wantSteps(t, "configuration accepted")
	s.advance(readyTimeout).wantSteps(t, "after readyTimeout", "assume ready")
	if s.state() != tunnelspec.StateRunning {
		t.Errorf("got state %s, want running", s.state())
	}
}

func TestRefusedConfigIsRetried(t *testing.T) {
	s := newRunningSimulation(t, testConfig(1, 0, ""))
	s.setDesired(testConfig(1, 0, "bad"))
	s.wantSteps(t, "a change", "reload")
	s.logs("Reading configuration from file x", `!"bad": no such option`, "!Configuration failed")
	s.wantSteps(t, "refused")
	if p := s.reported.Process; p == nil || p.Reason != tunnelspec.ReasonBadConfig || p.Message != `"bad": no such option` {
		t.Errorf("got %+v, want stunnel's message", p)
	}
	s.advance(refusedRetry-1).wantSteps(t, "before the retry")
	s.advance(1).wantSteps(t, "at the retry", "reload")
	s.logs(`!"bad": no such option`, "!Configuration failed").wantSteps(t, "refused again")
	if n := s.reported.Problems[tunnelspec.ReasonBadConfig]; n != 1 {
		t.Errorf("got %d problems, want one for each specification", n)
	}
	s.exited("signal: killed", s.now)
	s.wantSteps(t, "died", "start")
	if s.current.generation != "1 0 " {
		t.Errorf("got %q started, want the last good one", s.current.generation)
	}
}

func TestRestartDelaysGrow(t *testing.T) {
	s := newRunningSimulation(t, testConfig(1, 0, ""))
	want := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
		8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	for i, delay := range want {
		s.exited("exit status 1", s.now)
		if got := s.retryAt.Sub(s.now); got != delay {
			t.Errorf("death %d: got a delay of %s, want %s", i+1, got, delay)
		}
		switch {
		case delay > portHoldTime:
			s.wantSteps(t, "long delay", "close port")
			s.advance(delay).wantSteps(t, "after the delay", "listen", "start")
		case delay > 0:
			s.wantSteps(t, "before the end of the delay")
			fallthrough
		default:
			s.advance(delay).wantSteps(t, "after the delay", "start")
		}
	}
	s.advance(stableAfter).exited("exit status 1", s.now)
	if !s.retryAt.Equal(s.now) {
		t.Errorf("got a delay of %s after stableAfter, want none", s.retryAt.Sub(s.now))
	}
}

func TestDelayAfterServingStaysShort(t *testing.T) {
	minRestartDelay := process.RestartDelay(2)
	s := newRunningSimulation(t, testConfig(1, 0, ""))
	s.exited("signal: killed", s.now)
	for i := range 10 {
		s.advance(minRestartDelay).wantSteps(t, "after the delay", "start")
		s.advance(time.Second).connectsTo("192.0.2.1:2049").exited("signal: killed", s.now)
		if got := s.retryAt.Sub(s.now); got != minRestartDelay {
			t.Errorf("death %d: got a delay of %s, want %s", i+2, got, minRestartDelay)
		}
	}
	s.advance(minRestartDelay).wantSteps(t, "after the delay", "start")
	s.exited("exit status 1", s.now)
	if got := s.retryAt.Sub(s.now); got != 2*minRestartDelay {
		t.Errorf("got a delay of %s without a handshake, want %s", got, 2*minRestartDelay)
	}
}

func TestTakenPortIsRetried(t *testing.T) {
	s := newSimulation(testConfig(1, 0, ""))
	s.portInUse = true
	for range 5 {
		s.wantSteps(t, "the port is taken", "listen")
		if s.state() != tunnelspec.StateFailed || s.reported.Process.Reason != tunnelspec.ReasonPortTaken {
			t.Errorf("got state %s and %+v, want failed with PortTaken", s.state(), s.reported.Process)
		}
		s.advance(portRetry)
	}
	if n := s.reported.Problems[tunnelspec.ReasonPortTaken]; n != 1 {
		t.Errorf("got %d problems, want one for all attempts", n)
	}
	s.portInUse = false
	s.wantSteps(t, "the port is free", "listen", "start")
	if s.acceptsConfig(); s.reported.Process != nil {
		t.Errorf("got %+v, want no problem", s.reported.Process)
	}
	s.setDesired(testConfig(2, 0, ""))
	s.portInUse = true
	s.wantSteps(t, "the new port is taken", "listen")
	if s.state() != tunnelspec.StateRunning || s.status().Accept.String() != "127.0.0.1:1" {
		t.Errorf("got %+v, want it running on the old port", s.status())
	}
}

func TestTunnelIsRemovedWithItsSpecification(t *testing.T) {
	s := newRunningSimulation(t, testConfig(1, 0, ""))
	s.setDesired(config{})
	s.wantSteps(t, "removed", "stop")
	s.setDesired(testConfig(1, 0, "new"))
	s.wantSteps(t, "created again before the exit")
	s.exited("exit status 0", s.now)
	s.wantSteps(t, "exited", "start")
	s.setDesired(config{})
	s.wantSteps(t, "removed during the start", "stop")
	s.exited("exit status 0", s.now)
	s.wantSteps(t, "exited", "close port", "remove")
}
