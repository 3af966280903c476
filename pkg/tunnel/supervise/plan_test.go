package supervise

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a process that does nothing.
type fake struct{}

func (fake) PID() int              { return 7 }
func (fake) Signal(syscall.Signal) {}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// file is a configuration by what plans look at.
func file(port, serial int, rest string) []byte {
	return fmt.Appendf(nil, "; restart %d\naccept = 127.0.0.1:%d\n%s\n", serial, port, rest)
}

// story tells a tunnel what happens, at the times that it is told.
type story struct {
	*tunnel
	now time.Time
}

func newStory(want []byte) *story {
	s := &story{newTunnel("fs-1"), epoch}
	s.sees(want)
	return s
}

func (s *story) later(d time.Duration) *story { s.now = s.now.Add(d); return s }

func (s *story) says(lines ...string) *story {
	for _, text := range lines {
		severity := severityNotice
		if strings.HasPrefix(text, "!") {
			text, severity = text[1:], severityError
		}
		s.hear(line{severity: severity, thread: mainThread, text: text}, newClassifier(), s.now)
	}
	return s
}

// connects has a client reach a server that proves who it is.
func (s *story) connects(server string) *story {
	for _, text := range []string{"s_connect: connected " + server, "TLS connected: new session negotiated"} {
		s.hear(line{severity: severityNotice, thread: "1", text: text}, newClassifier(), s.now)
	}
	return s
}

// does carries steps out as the supervisor would, and names them.
func (s *story) does() []string {
	names := map[verb]string{
		doForget: "forget", doLook: "look", doStart: "start", doReload: "reload", doRestore: "restore",
		doSettle: "settle", doStop: "stop", doKill: "kill",
	}
	var done []string
	for range 20 {
		next := plan(s.tunnel, s.now)
		if next.verb == doNothing {
			if !next.at.IsZero() && !next.at.After(s.now) {
				done = append(done, "waits for the past")
			}
			return done
		}
		done = append(done, names[next.verb])
		if next.verb == doForget {
			return done
		}
		s.carryOut(next)
	}
	return append(done, "no end")
}

func (s *story) carryOut(next step) {
	switch next.verb {
	case doLook:
		s.portFree(s.now)
	case doStart:
		s.written = next.config
		s.started(fake{}, next.config, s.now)
	case doReload:
		s.written = next.config
		s.reloading(next.config, s.now)
	case doRestore:
		s.written = s.current
	case doSettle:
		s.settled(true)
	case doStop, doKill:
		s.stopping(stopGrace, s.now)
	case doNothing, doForget:
	}
}

func (s *story) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.does()); diff != "" {
		t.Errorf("%s: steps mismatch (-want +got):\n%s", what, diff)
	}
}

// runs is a story up to where the tunnel serves.
func runs(t *testing.T, config []byte) *story {
	t.Helper()
	s := newStory(config)
	s.want(t, "a new file", "look", "start")
	s.says("Configuration successful", "Service [fs-1] (FD=8) bound to 127.0.0.1:1", "Accepting new connections")
	s.want(t, "what serves")
	return s
}

func TestNoSignalBeforeStunnelHandlesIt(t *testing.T) {
	s := newStory(file(1, 0, ""))
	s.want(t, "a new file", "look", "start")
	s.sees(file(1, 0, "changed"))
	s.want(t, "a change during the start")
	s.says("Configuration successful", "Service [fs-1] (FD=8) bound to 127.0.0.1:1")
	s.want(t, "still starting")
	s.says("Accepting new connections")
	s.want(t, "now it handles signals", "reload")
}

func TestChanges(t *testing.T) {
	tests := map[string]struct {
		change []byte
		want   []string
	}{
		"nothing":         {file(1, 0, ""), nil},
		"an option":       {file(1, 0, "x"), []string{"reload"}},
		"the serial":      {file(1, 1, ""), []string{"stop"}},
		"serial and port": {file(2, 1, ""), []string{"stop"}},
		"the port":        {file(2, 0, ""), []string{"look", "reload"}},
		"file is gone":    {nil, []string{"stop"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := runs(t, file(1, 0, ""))
			s.sees(tt.change)
			s.want(t, "the change", tt.want...)
			s.want(t, "the same again")
		})
	}
}

func TestHangingStartAndReload(t *testing.T) {
	s := newStory(file(1, 0, ""))
	s.want(t, "a new file", "look", "start")
	s.later(startLimit-1).want(t, "just in time")
	s.later(1).want(t, "too late", "stop")
	s.later(stopGrace).want(t, "does not end", "kill")

	s = runs(t, file(1, 0, ""))
	s.sees(file(1, 0, "x"))
	s.want(t, "a change", "reload")
	s.later(reloadLimit).want(t, "no answer", "stop")
	s.ended("signal: terminated", s.now)
	s.want(t, "has ended", "look", "start")
}

// Versions that do not say where they listen are believed after a while.
func TestQuietStunnelSettles(t *testing.T) {
	s := newStory(file(1, 0, ""))
	s.want(t, "a new file", "look", "start")
	s.says("Configuration successful").want(t, "half an answer")
	s.later(settleTime).want(t, "no more will come", "settle")
	if s.state() != StateRunning || !s.listening {
		t.Errorf("got %s, want it running", s.state())
	}
}

func TestReloadThatLosesThePort(t *testing.T) {
	s := runs(t, file(1, 0, ""))
	s.sees(file(1, 0, "x"))
	s.want(t, "a change", "reload")
	s.says("Configuration successful", "Binding service [fs-1] to 127.0.0.1:1: Address already in use (98)", "!Binding service [fs-1] failed")
	s.want(t, "the port is gone")
	if s.state() != StateRunning || s.listening || s.problems.process.Reason != ReasonPortTaken {
		t.Errorf("got %s and %+v, want a process that serves old connections only", s.state(), s.problems.process)
	}
	s.later(portPoll).want(t, "the port is free", "look", "reload")
	s.says("Configuration successful", "Service [fs-1] (FD=3) bound to 127.0.0.1:1")
	s.want(t, "has it back")
	if !s.listening || s.problems.process != nil {
		t.Errorf("got %+v, want no problem", s.problems.process)
	}
}

func TestRefusedConfigurationIsTriedAgain(t *testing.T) {
	s := runs(t, file(1, 0, ""))
	s.sees(file(1, 0, "bad"))
	s.want(t, "a change", "reload")
	s.says("Reading configuration from file x", `!"bad": no such option`, "!Configuration failed")
	s.want(t, "refused", "restore")
	if p := s.problems.process; p == nil || p.Reason != ReasonBadConfig || p.Words != `"bad": no such option` {
		t.Errorf("got %+v, want stunnel's words", p)
	}
	s.later(refusedRetry-1).want(t, "too early")
	s.later(1).want(t, "later", "reload")
	s.says(`!"bad": no such option`, "!Configuration failed").want(t, "refused again", "restore")
	if n := s.problems.counts[ReasonBadConfig]; n != 1 {
		t.Errorf("got %d problems, want one for one file", n)
	}
}

func TestDelays(t *testing.T) {
	s := runs(t, file(1, 0, ""))
	want := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
		8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	for i, delay := range want {
		s.ended("exit status 1", s.now)
		if got := s.retryAt.Sub(s.now); got != delay {
			t.Errorf("death %d: got a delay of %s, want %s", i+1, got, delay)
		}
		if delay > 0 {
			s.want(t, "too early")
		}
		s.later(delay).want(t, "again", "look", "start")
	}
	s.later(longLife).ended("exit status 1", s.now)
	if !s.retryAt.Equal(s.now) {
		t.Errorf("got a delay of %s after a long life, want none", s.retryAt.Sub(s.now))
	}
}

// Volumes wait half a second for one that dies again right after it has served.
func TestDelaysOfWhatHadServed(t *testing.T) {
	s := runs(t, file(1, 0, ""))
	s.ended("signal: killed", s.now)
	for i := range 10 {
		s.later(firstDelay).want(t, "again", "look", "start")
		s.later(time.Second).connects("192.0.2.1:2049").ended("signal: killed", s.now)
		if got := s.retryAt.Sub(s.now); got != firstDelay {
			t.Errorf("death %d: got a delay of %s, want %s", i+2, got, firstDelay)
		}
	}
	s.later(firstDelay).want(t, "again", "look", "start")
	s.ended("exit status 1", s.now)
	if got := s.retryAt.Sub(s.now); got != 2*firstDelay {
		t.Errorf("got a delay of %s after one that had not served, want %s", got, 2*firstDelay)
	}
}

func TestPortLostInTheStartItself(t *testing.T) {
	s := newStory(file(1, 0, ""))
	for range 5 {
		s.want(t, "the port looks free", "look", "start")
		s.says("Configuration successful", "Binding service [fs-1] to 127.0.0.1:1: Address already in use (98)", "!Binding service [fs-1] failed")
		s.ended("exit status 1", s.now)
		if s.state() != StateFailed || s.problems.process.Reason != ReasonPortTaken {
			t.Errorf("got %s and %+v", s.state(), s.problems.process)
		}
		s.later(portDelay)
	}
	if n := s.problems.counts[ReasonPortTaken]; n != 1 {
		t.Errorf("got %d problems, want one until it is over", n)
	}
}

func TestFileGoneForgetsTheTunnel(t *testing.T) {
	s := runs(t, file(1, 0, ""))
	s.sees(nil)
	s.want(t, "gone", "stop")
	s.sees(file(1, 0, "back"))
	s.want(t, "back before it has ended")
	s.ended("exit status 0", s.now)
	s.want(t, "ended", "look", "start")
	s.sees(nil)
	s.want(t, "gone while it starts", "stop")
	s.ended("exit status 0", s.now)
	s.want(t, "ended", "forget")
}
