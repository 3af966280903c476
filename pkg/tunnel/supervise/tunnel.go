package supervise

import (
	"bytes"
	"net/netip"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// Times of a tunnel's life.
const (
	// startLimit and reloadLimit are how long stunnel may take for what it does in some 30 ms.
	startLimit  = 30 * time.Second
	reloadLimit = 30 * time.Second
	// settleTime is how long the lines that say where stunnel listens may come late; versions
	// that never write them are taken to listen then if their port is in use.
	settleTime = 5 * time.Second
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = 5 * time.Second
	// portPoll is the time between two looks at a port that something else has: a takeover must
	// not be felt.
	portPoll = 50 * time.Millisecond
	// portDelay bounds the delay of a start after one that lost the port to something else.
	portDelay = time.Second
	// firstDelay, doubled with each death, is the wait before the third and later starts.
	firstDelay = 500 * time.Millisecond
	maxDelay   = 30 * time.Second
	// longLife is after how long a death counts as the first one again. It is short: volumes wait
	// for every delay, and a start every few seconds costs a node little.
	longLife = 5 * time.Second
	// mostDeathsServed is what deaths are taken for at most when the process had served: it is
	// no process that cannot start, and volumes hang on it.
	mostDeathsServed = 1
	// writeRetry is the wait after a file could not be written.
	writeRetry = 5 * time.Second
	// refusedRetry: a configuration that stunnel refused may be good later, when a certificate
	// that it names has appeared.
	refusedRetry = 30 * time.Second
)

// phase is what a tunnel's process is doing.
type phase int

const (
	phaseNone      phase = iota // there is no process
	phaseStarting               // until it accepts connections; SIGHUP would kill it
	phaseRunning                // with its configuration in force
	phaseReloading              // until it has taken or refused the new one
	phaseStopping               // until it has ended
)

// tunnel is what the supervisor knows of one. It has no clock and does nothing: events come in,
// and plan says what to do.
type tunnel struct {
	name string
	want []byte // of the file; nil when it is gone

	proc      process // nil when there is none
	phase     phase
	deadline  time.Time // of a phase other than phaseRunning
	startedAt time.Time // of proc

	current  []byte // what the process was started with or has taken since
	pending  []byte // what it is taking; nil unless phaseReloading
	good     []byte // what a process took last; nil before the first
	refused  []byte // what a process refused last
	written  []byte // what the process finds in its file
	accepted bool   // the start's or reload's configuration is in force
	// listening is true from when stunnel says so until the process ends or a reload fails to.
	listening bool

	retryAt    time.Time // not started before
	refusedAt  time.Time // when refused was
	portLookAt time.Time // when the port that something else has is looked at next
	portFreeAt time.Time // when it was last seen free
	deaths     int       // in a row

	starts, reloads int
	complaints      []string // errors of this start or reload
	problems        problems
}

// problems are those of the status, and what is needed to keep them.
type problems struct {
	process, connection *Problem
	counts              map[Reason]int
	remote              netip.AddrPort
	remoteAt            time.Time
	conns               map[string]conn // those under way, by stunnel's number
}

// conn is a connection of which lines came.
type conn struct {
	server netip.AddrPort // connected to
	open   bool           // it proved who it is
	told   bool           // a problem was counted
}

func newTunnel(name string) *tunnel {
	return &tunnel{
		name:     name,
		problems: problems{counts: map[Reason]int{}, conns: map[string]conn{}},
	}
}

// sees is told what the file says now.
func (t *tunnel) sees(want []byte) {
	t.want = want
	t.clear()
}

// clear forgets the process' problem when there is none any more.
func (t *tunnel) clear() {
	if t.phase == phaseRunning && t.listening && bytes.Equal(t.current, t.want) {
		t.problems.process, t.refused = nil, nil
	}
}

// started is told of a process that was begun with a configuration.
func (t *tunnel) started(p process, config []byte, now time.Time) {
	t.proc, t.phase, t.startedAt = p, phaseStarting, now
	t.deadline = now.Add(startLimit)
	t.current, t.pending = config, nil
	t.accepted, t.listening, t.complaints = false, false, nil
	t.retryAt, t.portFreeAt = time.Time{}, time.Time{}
	t.starts++
}

// startFailed is told of one that could not be begun.
func (t *tunnel) startFailed(words string, now time.Time) {
	t.died(ReasonStartFailed, words, now)
}

// reloading is told of a SIGHUP.
func (t *tunnel) reloading(config []byte, now time.Time) {
	t.phase, t.pending = phaseReloading, config
	t.deadline = now.Add(reloadLimit)
	t.portFreeAt = time.Time{}
	t.accepted, t.complaints = false, nil
}

// stopping is told of a SIGTERM.
func (t *tunnel) stopping(grace time.Duration, now time.Time) {
	t.phase, t.pending = phaseStopping, nil
	t.deadline = now.Add(grace)
}

// ended is told of the process' end.
func (t *tunnel) ended(how string, now time.Time) {
	phase, lived, served := t.phase, now.Sub(t.startedAt), t.served()
	t.proc, t.phase, t.pending, t.listening = nil, phaseNone, nil, false
	t.problems.conns = map[string]conn{}
	if phase == phaseStopping {
		t.retryAt = time.Time{}
		return
	}
	switch {
	case lived >= longLife:
		t.deaths = 0
	case served:
		t.deaths = min(t.deaths, mostDeathsServed)
	}
	switch words := strings.Join(t.complaints, "; "); {
	case phase == phaseStarting && t.isPortTaken():
		t.portTaken(words, now)
		t.delay(now)
		t.retryAt = earlier(t.retryAt, now.Add(portDelay))
	case phase == phaseStarting && !t.accepted && words != "":
		t.refuse(t.current, words, now)
		t.delay(now)
	default:
		t.died(ReasonDied, strings.TrimPrefix(how+"; "+words, "; "), now)
	}
}

// served says whether the process has connected somebody to a server that proved who it is.
func (t *tunnel) served() bool {
	return !t.problems.remoteAt.IsZero() && !t.problems.remoteAt.Before(t.startedAt)
}

func (t *tunnel) died(reason Reason, words string, now time.Time) {
	t.processProblem(reason, strings.TrimSuffix(words, "; "), now)
	t.delay(now)
}

// delay sets when the next start may be: at once after a first death, then later and later.
func (t *tunnel) delay(now time.Time) {
	t.deaths++
	t.retryAt = now.Add(restartDelay(t.deaths))
}

// restartDelay is the wait after so many deaths in a row.
func restartDelay(deaths int) time.Duration {
	if deaths <= 1 {
		return 0
	}
	delay := firstDelay
	for range deaths - 2 {
		delay = min(2*delay, maxDelay)
	}
	return delay
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// portTaken is told that something else has the port, and says whether that was not known.
func (t *tunnel) portTaken(words string, now time.Time) (news bool) {
	t.portLookAt = now.Add(portPoll)
	if p := t.problems.process; p != nil && p.Reason == ReasonPortTaken {
		return false // one problem, looked at many times
	}
	t.processProblem(ReasonPortTaken, words, now)
	return true
}

// notWritten is told that the process cannot be given a configuration.
func (t *tunnel) notWritten(words string, now time.Time) {
	t.processProblem(ReasonStartFailed, words, now)
	t.retryAt = now.Add(writeRetry)
}

// portFree is told that nothing has it. That is true for this moment only.
func (t *tunnel) portFree(now time.Time) { t.portLookAt, t.portFreeAt = time.Time{}, now }

// refuse notes that stunnel did not take a configuration.
func (t *tunnel) refuse(config []byte, words string, now time.Time) {
	known := bytes.Equal(config, t.refused) && t.problems.process != nil && t.problems.process.Words == words
	t.refused, t.refusedAt = config, now
	if !known {
		t.processProblem(ReasonBadConfig, words, now)
	}
}

func (t *tunnel) processProblem(reason Reason, words string, now time.Time) {
	t.problems.process = &Problem{Reason: reason, Words: words, At: now}
	t.problems.counts[reason]++
}

// isPortTaken looks for the errno's words in what the process last complained about.
func (t *tunnel) isPortTaken() bool {
	for _, words := range t.complaints {
		if strings.Contains(words, "Address already in use") {
			return true
		}
	}
	return false
}

// settled ends a start or a reload for a stunnel that does not say that it listens.
func (t *tunnel) settled(listening bool) {
	t.listening = listening
	t.inForce()
}

// inForce is told when what the process was started with, or is reloading, serves.
func (t *tunnel) inForce() {
	if t.phase == phaseReloading {
		t.current, t.pending = t.pending, nil
		t.reloads++
	}
	t.phase = phaseRunning
	t.clear()
}

// isRefused says whether the file is as stunnel refused it.
func (t *tunnel) isRefused() bool { return t.refused != nil && bytes.Equal(t.want, t.refused) }

// attempted is the configuration that the process is to have in force.
func (t *tunnel) attempted() []byte {
	if t.phase == phaseReloading {
		return t.pending
	}
	return t.current
}

// portLooked says whether the port was found free just now.
func (t *tunnel) portLooked(now time.Time) bool { return t.portFreeAt.Equal(now) }

// moves says whether the file has the process listen elsewhere than it does.
func (t *tunnel) moves() bool {
	return stunnelcfg.Accept(t.want) != stunnelcfg.Accept(t.current)
}
