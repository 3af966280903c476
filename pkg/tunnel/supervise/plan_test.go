package supervise

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// fake is a process that does nothing.
type fake struct{}

func (fake) PID() int              { return 7 }
func (fake) Signal(syscall.Signal) {}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// asked is a specification by what plans look at.
func asked(port uint16, serial int, host string) config {
	t := spec.Tunnel{Name: "fs-1", Accept: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), CheckHost: host, Restart: serial}
	return config{Tunnel: t, generation: fmt.Sprintf("%d %d %s", port, serial, host)}
}

// story tells a tunnel what happens, at the times that it is told.
type story struct {
	*tunnel
	now   time.Time
	taken bool // the port that is asked for
}

// newStory is of a tunnel whose process always runs.
func newStory(want config) *story { return newIdleStory(want, 0) }

func newIdleStory(want config, idle time.Duration) *story {
	s := &story{tunnel: newTunnel("fs-1", idle), now: epoch}
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
		doForget: "forget", doListen: "listen", doLetGo: "let go", doArm: "arm", doStart: "start", doReload: "reload",
		doSettle: "settle", doRest: "rest", doStop: "stop", doKill: "kill",
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
	case doListen:
		if s.taken {
			s.portTaken("it is taken", s.now)
			return
		}
		s.listens(&listener{address: s.tunnel.want.Accept})
	case doLetGo:
		s.letGo()
	case doArm:
		s.armed = true
	case doStart:
		s.started(fake{}, next.config, s.now)
	case doReload:
		s.reloading(next.config, s.now)
	case doSettle:
		s.inForce()
	case doRest:
		s.rests()
		s.stopping(stopGrace, s.now)
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

// accepts has a start or a reload succeed.
func (s *story) accepts() *story {
	return s.says("Configuration successful", "Service [fs-1] (FD=3) bound to 127.0.0.1:1", "Accepting new connections")
}

// runs is a story up to where the tunnel serves.
func runs(t *testing.T, c config) *story {
	t.Helper()
	s := newStory(c)
	s.want(t, "a new tunnel", "listen", "start")
	s.accepts().want(t, "what serves")
	return s
}

func TestNoSignalBeforeStunnelHandlesIt(t *testing.T) {
	s := newStory(asked(1, 0, ""))
	s.want(t, "a new tunnel", "listen", "start")
	s.sees(asked(1, 0, "changed"))
	s.want(t, "a change during the start")
	s.says("Configuration successful", "Service [fs-1] (FD=3) bound to 127.0.0.1:1")
	s.want(t, "still starting")
	s.says("Accepting new connections")
	s.want(t, "now it handles signals", "reload")
}

func TestChanges(t *testing.T) {
	tests := map[string]struct {
		change config
		want   []string
	}{
		"nothing":         {asked(1, 0, ""), nil},
		"an option":       {asked(1, 0, "x"), []string{"reload"}},
		"the serial":      {asked(1, 1, ""), []string{"stop"}},
		"serial and port": {asked(2, 1, ""), []string{"listen", "stop"}},
		"the port":        {asked(2, 0, ""), []string{"listen", "stop"}},
		"it is gone":      {config{}, []string{"stop"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := runs(t, asked(1, 0, ""))
			s.sees(tt.change)
			s.want(t, "the change", tt.want...)
			s.want(t, "the same again")
		})
	}
}

// TestProcessOnDemand runs from the first connection until nobody has been connected for a while.
func TestProcessOnDemand(t *testing.T) {
	s := newIdleStory(asked(1, 0, ""), time.Minute)
	s.want(t, "a new tunnel", "listen", "arm")
	if s.state() != StateResting || s.status().Generation != "1 0 " {
		t.Errorf("got %+v, want it resting with what was asked for in force", s.status())
	}
	s.sees(asked(1, 0, "x"))
	s.want(t, "a change while it rests")
	s.arrived()
	s.want(t, "somebody connects", "start")
	s.accepts().want(t, "serves")
	s.used(1, true, s.now)
	s.later(time.Hour).want(t, "in use")
	s.used(0, true, s.now)
	s.later(time.Minute-1).want(t, "idle for less than a while")
	s.used(1, true, s.now)
	s.used(0, true, s.now)
	s.later(time.Minute-1).want(t, "used again")
	s.later(1).want(t, "idle", "rest")
	s.arrived()
	s.ended("exit status 0", s.now)
	s.want(t, "somebody connects while it ends", "start")
	s.accepts()
	if s.restarts != 0 {
		t.Errorf("got %d restarts, want none", s.restarts)
	}
	s.used(0, true, s.now)
	s.used(0, false, s.now)
	s.later(time.Hour).want(t, "not known whether it is used")
	s.used(0, true, s.now)
	s.later(time.Minute).want(t, "idle", "rest")
	s.ended("exit status 0", s.now)
	s.want(t, "rests", "arm")
}

func TestDiesWhileItIsUsed(t *testing.T) {
	s := newIdleStory(asked(1, 0, ""), time.Minute)
	s.want(t, "a new tunnel", "listen", "arm")
	s.arrived()
	s.want(t, "somebody connects", "start")
	s.accepts().ended("signal: killed", s.now)
	s.want(t, "dies", "start")
	if s.restarts != 1 {
		t.Errorf("got %d restarts, want one", s.restarts)
	}
}

func TestHangingStartAndReload(t *testing.T) {
	s := newStory(asked(1, 0, ""))
	s.want(t, "a new tunnel", "listen", "start")
	s.later(startLimit-1).want(t, "just in time")
	s.later(1).want(t, "too late", "stop")
	s.later(stopGrace).want(t, "does not end", "kill")

	s = runs(t, asked(1, 0, ""))
	s.sees(asked(1, 0, "x"))
	s.want(t, "a change", "reload")
	s.later(reloadLimit).want(t, "no answer", "stop")
	s.ended("signal: terminated", s.now)
	s.want(t, "has ended", "start")
}

// Versions that do not say that they accept are believed after a while.
func TestQuietStunnelSettles(t *testing.T) {
	s := newStory(asked(1, 0, ""))
	s.want(t, "a new tunnel", "listen", "start")
	s.says("Configuration successful").want(t, "half an answer")
	s.later(settleTime).want(t, "no more will come", "settle")
	if s.state() != StateRunning {
		t.Errorf("got %s, want it running", s.state())
	}
}

func TestRefusedConfigurationIsTriedAgain(t *testing.T) {
	s := runs(t, asked(1, 0, ""))
	s.sees(asked(1, 0, "bad"))
	s.want(t, "a change", "reload")
	s.says("Reading configuration from file x", `!"bad": no such option`, "!Configuration failed")
	s.want(t, "refused")
	if p := s.problems.process; p == nil || p.Reason != ReasonBadConfig || p.Words != `"bad": no such option` {
		t.Errorf("got %+v, want stunnel's words", p)
	}
	s.later(refusedRetry-1).want(t, "too early")
	s.later(1).want(t, "later", "reload")
	s.says(`!"bad": no such option`, "!Configuration failed").want(t, "refused again")
	if n := s.problems.counts[ReasonBadConfig]; n != 1 {
		t.Errorf("got %d problems, want one for one specification", n)
	}
	s.ended("signal: killed", s.now)
	s.want(t, "dies beside it", "start")
	if s.current.generation != "1 0 " {
		t.Errorf("got %q started, want the last good one", s.current.generation)
	}
}

func TestDelays(t *testing.T) {
	s := runs(t, asked(1, 0, ""))
	want := []time.Duration{0, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
		8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second}
	for i, delay := range want {
		s.ended("exit status 1", s.now)
		if got := s.retryAt.Sub(s.now); got != delay {
			t.Errorf("death %d: got a delay of %s, want %s", i+1, got, delay)
		}
		switch {
		case delay > holdTime:
			s.want(t, "nobody is to wait so long", "let go")
			s.later(delay).want(t, "again", "listen", "start")
		case delay > 0:
			s.want(t, "too early")
			fallthrough
		default:
			s.later(delay).want(t, "again", "start")
		}
	}
	s.later(longLife).ended("exit status 1", s.now)
	if !s.retryAt.Equal(s.now) {
		t.Errorf("got a delay of %s after a long life, want none", s.retryAt.Sub(s.now))
	}
}

// Volumes wait half a second for one that dies again right after it has served.
func TestDelaysOfWhatHadServed(t *testing.T) {
	s := runs(t, asked(1, 0, ""))
	s.ended("signal: killed", s.now)
	for i := range 10 {
		s.later(firstDelay).want(t, "again", "start")
		s.later(time.Second).connects("192.0.2.1:2049").ended("signal: killed", s.now)
		if got := s.retryAt.Sub(s.now); got != firstDelay {
			t.Errorf("death %d: got a delay of %s, want %s", i+2, got, firstDelay)
		}
	}
	s.later(firstDelay).want(t, "again", "start")
	s.ended("exit status 1", s.now)
	if got := s.retryAt.Sub(s.now); got != 2*firstDelay {
		t.Errorf("got a delay of %s after one that had not served, want %s", got, 2*firstDelay)
	}
}

func TestPortThatIsTaken(t *testing.T) {
	s := newStory(asked(1, 0, ""))
	s.taken = true
	for range 5 {
		s.want(t, "the port is taken", "listen")
		if s.state() != StateFailed || s.problems.process.Reason != ReasonPortTaken {
			t.Errorf("got %s and %+v", s.state(), s.problems.process)
		}
		s.later(portPoll)
	}
	if n := s.problems.counts[ReasonPortTaken]; n != 1 {
		t.Errorf("got %d problems, want one until it is over", n)
	}
	s.taken = false
	s.want(t, "the port is free", "listen", "start")
	if s.accepts(); s.problems.process != nil {
		t.Errorf("got %+v, want no problem", s.problems.process)
	}
	s.sees(asked(2, 0, ""))
	s.taken = true
	s.want(t, "to move to a port that is taken", "listen")
	if s.state() != StateRunning || s.status().Accept != "127.0.0.1:1" {
		t.Errorf("got %+v, want it as it was", s.status())
	}
}

func TestTunnelThatIsGoneIsForgotten(t *testing.T) {
	s := runs(t, asked(1, 0, ""))
	s.sees(config{})
	s.want(t, "gone", "stop")
	s.sees(asked(1, 0, "back"))
	s.want(t, "back before it has ended")
	s.ended("exit status 0", s.now)
	s.want(t, "ended", "start")
	s.sees(config{})
	s.want(t, "gone while it starts", "stop")
	s.ended("exit status 0", s.now)
	s.want(t, "ended", "let go", "forget")
}
