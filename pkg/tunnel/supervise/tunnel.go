package supervise

import (
	"net/netip"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/spec"
)

// Times of a tunnel's life.
const (
	// startLimit and reloadLimit are how long stunnel may take for what it does in some 30 ms.
	startLimit  = 30 * time.Second
	reloadLimit = 30 * time.Second
	// settleTime is how long the line that says that stunnel accepts connections may come late;
	// versions that never write it are taken to do so then.
	settleTime = 5 * time.Second
	// stopGrace is the time between SIGTERM and SIGKILL.
	stopGrace = 5 * time.Second
	// portPoll is the time between two tries to listen on a port that something else has: a
	// takeover must not be felt.
	portPoll = 50 * time.Millisecond
	// firstDelay, doubled with each death, is the wait before the third and later starts.
	firstDelay = 500 * time.Millisecond
	maxDelay   = 30 * time.Second
	// holdTime is for how long a listener is kept while no process can be started: connections
	// wait so long in vain, and are refused after it.
	holdTime = 2 * time.Second
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

// config is a specification, and the generation of its bytes; the zero config is none.
type config struct {
	spec.Tunnel
	generation string
}

func (c config) exists() bool { return c.generation != "" }

func (c config) is(other config) bool { return c.generation == other.generation }

// tunnel is what the supervisor knows of one. It has no clock and does nothing: events come in,
// and plan says what to do.
type tunnel struct {
	name string
	want config        // that the agent asks for; none when it is gone
	idle time.Duration // after how long without a connection the process ends; 0 for never

	socket *listener // nil while none is open
	armed  bool      // the next connection at the socket is told
	proc   process   // nil when there is none
	phase  phase
	// needed: a process is to run, because somebody has connected, or always.
	needed    bool
	idleSince time.Time // since when nobody is connected; zero while somebody is
	deadline  time.Time // of a phase other than phaseRunning
	startedAt time.Time // of proc
	memory    uint64    // of proc, in bytes; 0 before it was read
	memoryAt  time.Time // when it is read again

	current  config // what the process was started with or has taken since
	pending  config // what it is taking; none unless phaseReloading
	good     config // what a process took last; none before the first
	refused  config // what a process refused last
	accepted bool   // the start's or reload's configuration is in force

	listenAt  time.Time // no try to listen before
	retryAt   time.Time // not started before
	refusedAt time.Time // when refused was
	deaths    int       // in a row

	// leaving: the supervisor ends, and this tunnel has nobody left whom it serves.
	leaving bool

	starts, restarts, reloads int // a start after a rest is no restart
	rested                    bool
	complaints                []string // errors of this start or reload
	problems                  problems
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

func newTunnel(name string, idle time.Duration) *tunnel {
	return &tunnel{
		name: name, idle: idle, needed: idle == 0,
		problems: problems{counts: map[Reason]int{}, conns: map[string]conn{}},
	}
}

// sees is told what the agent asks for now.
func (t *tunnel) sees(want config) {
	t.want = want
	t.clear()
}

// leave ends the tunnel with its supervisor.
func (t *tunnel) leave() { t.leaving, t.want = true, config{} }

// clear forgets the process' problem when there is none any more.
func (t *tunnel) clear() {
	if t.phase == phaseRunning && t.listening() && t.current.is(t.want) {
		t.problems.process, t.refused = nil, config{}
	}
}

// listening says whether the port is open where the tunnel is to be.
func (t *tunnel) listening() bool { return t.socket != nil && t.socket.address == t.want.Accept }

// listens is told of an open socket.
func (t *tunnel) listens(l *listener) {
	t.socket, t.armed, t.listenAt = l, false, time.Time{}
	if p := t.problems.process; p != nil && p.Reason == ReasonPortTaken {
		t.problems.process = nil
	}
	t.clear()
}

// portTaken is told that something else has the port, and says whether that was not known.
func (t *tunnel) portTaken(words string, now time.Time) (news bool) {
	t.listenAt = now.Add(portPoll)
	if p := t.problems.process; p != nil && p.Reason == ReasonPortTaken {
		return false // one problem, met many times
	}
	t.processProblem(ReasonPortTaken, words, now)
	return true
}

// cannotListen is told that the port cannot be opened, for any other reason.
func (t *tunnel) cannotListen(words string, now time.Time) {
	t.processProblem(ReasonStartFailed, words, now)
	t.listenAt = now.Add(writeRetry)
}

// letGo is told that the socket was closed.
func (t *tunnel) letGo() { t.socket, t.armed = nil, false }

// arrived is told that somebody connects.
func (t *tunnel) arrived() { t.armed, t.needed, t.idleSince = false, true, time.Time{} }

// used is told how many are connected; known is false when that cannot be found out.
func (t *tunnel) used(clients int, known bool, now time.Time) {
	switch {
	case clients > 0 || !known || t.phase != phaseRunning:
		t.idleSince = time.Time{}
	case t.idleSince.IsZero():
		t.idleSince = now
	}
}

// isIdle says whether nobody has been connected for so long that the process may end.
func (t *tunnel) isIdle(now time.Time) bool {
	return t.idle > 0 && !t.idleSince.IsZero() && now.Sub(t.idleSince) >= t.idle
}

// started is told of a process that was begun with a configuration.
func (t *tunnel) started(p process, c config, now time.Time) {
	t.proc, t.phase, t.startedAt = p, phaseStarting, now
	t.deadline = now.Add(startLimit)
	t.current, t.pending = c, config{}
	t.accepted, t.complaints = false, nil
	t.retryAt, t.idleSince = time.Time{}, time.Time{}
	t.memory, t.memoryAt = 0, time.Time{}
	if t.starts > 0 && !t.rested {
		t.restarts++
	}
	t.starts++
	t.rested = false
}

// startFailed is told of one that could not be begun.
func (t *tunnel) startFailed(words string, now time.Time) {
	t.died(ReasonStartFailed, words, now)
}

// reloading is told of a SIGHUP.
func (t *tunnel) reloading(c config, now time.Time) {
	t.phase, t.pending = phaseReloading, c
	t.deadline = now.Add(reloadLimit)
	t.accepted, t.complaints = false, nil
}

// stopping is told of a SIGTERM.
func (t *tunnel) stopping(grace time.Duration, now time.Time) {
	t.phase, t.pending = phaseStopping, config{}
	t.deadline = now.Add(grace)
}

// rests is told that the process ends because nobody uses it.
func (t *tunnel) rests() { t.needed, t.rested, t.idleSince = false, true, time.Time{} }

// ended is told of the process' end.
func (t *tunnel) ended(how string, now time.Time) {
	phase, lived, served := t.phase, now.Sub(t.startedAt), t.served()
	t.proc, t.phase, t.pending = nil, phaseNone, config{}
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
	words := strings.Join(t.complaints, "; ")
	if phase == phaseStarting && !t.accepted && words != "" {
		t.refuse(t.current, words, now)
		t.delay(now)
		return
	}
	t.died(ReasonDied, strings.TrimPrefix(how+"; "+words, "; "), now)
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

// notWritten is told that the process cannot be given a configuration.
func (t *tunnel) notWritten(words string, now time.Time) {
	t.processProblem(ReasonStartFailed, words, now)
	t.retryAt = now.Add(writeRetry)
}

// refuse notes that stunnel did not take a configuration.
func (t *tunnel) refuse(c config, words string, now time.Time) {
	known := c.is(t.refused) && t.problems.process != nil && t.problems.process.Words == words
	t.refused, t.refusedAt = c, now
	if !known {
		t.processProblem(ReasonBadConfig, words, now)
	}
}

func (t *tunnel) processProblem(reason Reason, words string, now time.Time) {
	t.problems.process = &Problem{Reason: reason, Words: words, At: now}
	t.problems.counts[reason]++
}

// inForce is told when what the process was started with, or is reloading, serves.
func (t *tunnel) inForce() {
	if t.phase == phaseReloading {
		t.current, t.pending = t.pending, config{}
		t.reloads++
	}
	t.phase = phaseRunning
	t.clear()
}

// isRefused says whether the agent asks for what stunnel refused.
func (t *tunnel) isRefused() bool { return t.refused.exists() && t.want.is(t.refused) }

// attempted is the configuration that the process is to have in force.
func (t *tunnel) attempted() config {
	if t.phase == phaseReloading {
		return t.pending
	}
	return t.current
}
