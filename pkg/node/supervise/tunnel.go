package supervise

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/front"
	"gnuthought.com/efs-stunnel/pkg/program/process"
)

const (
	answerTimeout = 30 * time.Second // bounds a start or a reload, which take stunnel some 30 ms
	// readyTimeout is the time after "Configuration successful" after which stunnel counts as ready:
	// some versions do not log that they accept connections.
	readyTimeout = 5 * time.Second
	stopGrace    = 5 * time.Second // the time between SIGTERM and SIGKILL
	// portRetry is the time between two attempts to listen on a port that is in use. It is short
	// because clients wait while a port changes hands.
	portRetry = 50 * time.Millisecond
	// portHoldTime is the longest start delay during which the port stays open. With a longer delay
	// the port is closed, so that connections are refused instead of waiting in vain.
	portHoldTime = 2 * time.Second
	// stableAfter is the age of a process at which its death counts as the first in a row again. It
	// is short: volumes hang during every delay, and a start every few seconds is cheap.
	stableAfter = 5 * time.Second
	// maxDeathsAfterServing bounds the count of deaths when the process had served a connection:
	// its configuration works, and volumes hang until the next start.
	maxDeathsAfterServing = 1
	writeRetry            = 5 * time.Second // the delay after a file could not be written or a port not be opened
	// maxRejected is the number of connections in a row that stunnel rejects before it is restarted, which
	// ends its other connections. A process younger than minRejecting is not: where each new one rejects,
	// too, restarts would do nothing but cut them.
	maxRejected  = 3
	minRejecting = time.Minute
	// refusedRetry is the delay after stunnel refused a configuration, which can become valid when a
	// certificate file that it names appears.
	refusedRetry = 30 * time.Second
)

// phase is the state of a tunnel's process.
type phase int

const (
	phaseNone     phase = iota // no process
	phaseStarting              // until stunnel accepts connections; SIGHUP would kill it
	phaseRunning
	phaseReloading // until stunnel has accepted or refused the new configuration
	phaseStopping  // until the process has exited
)

// config is a specification with its generation. The zero config means that there is none.
type config struct {
	tunnelspec.Tunnel
	generation string
}

func (c config) isSet() bool { return c.generation != "" }

func (c config) sameAs(other config) bool { return c.generation == other.generation }

// tunnel is the state of one tunnel. It has no clock and no side effects: its methods record events,
// and plan decides the next step.
type tunnel struct {
	name    string
	desired config        // of the specification; unset when that was removed
	idle    time.Duration // Options.Idle

	socket *listener    // nil while the port is closed
	front  *front.Front // accepts the connections of socket; nil without lanes
	armed  bool         // connWatcher reports the next connection
	proc   *os.Process  // nil in phaseNone
	phase  phase
	needed bool // a process is to run: a client has connected, or idle is 0

	rejected int // connections in a row that the process rejected

	idleSince time.Time // zero while clients are connected
	deadline  time.Time // of a phase other than phaseRunning
	memoryAt  time.Time // when the memory of proc is read again

	attempted config // of the last start or reload
	accepted  bool   // stunnel accepted attempted
	current   config // of the process
	lastGood  config // that stunnel accepted last; unset before the first
	refused   config // that stunnel refused last

	listenAt  time.Time // earliest next attempt to listen
	retryAt   time.Time // earliest next start or reload
	refusedAt time.Time
	deaths    int // in a row

	closing bool // the supervisor shuts down and has released this tunnel

	starts      int
	stoppedIdle bool
	errorLines  []string                // that stunnel logged during this start or reload
	conns       map[string]conn         // by stunnel's connection number
	reported    tunnelspec.TunnelStatus // but for what status derives
}

// conn is a connection that stunnel has logged lines of.
type conn struct {
	server      netip.AddrPort
	established bool // the TLS handshake has succeeded
	counted     bool // one problem was counted
}

func newTunnel(name string, idle time.Duration) *tunnel {
	return &tunnel{
		name: name, idle: idle, needed: idle == 0,
		conns: map[string]conn{}, reported: tunnelspec.TunnelStatus{Problems: map[tunnelspec.Reason]int{}},
	}
}

func (t *tunnel) setDesired(c config) {
	t.desired = c
	if t.front != nil {
		t.front.SetPinned(c.Lanes)
	}
	t.clearProcessProblem()
}

// close releases the tunnel during the supervisor's shutdown.
func (t *tunnel) close() { t.closing, t.desired = true, config{} }

// clearProcessProblem clears the problem of the process once the desired configuration serves.
func (t *tunnel) clearProcessProblem() {
	if t.phase == phaseRunning && t.listening() && t.current.sameAs(t.desired) {
		t.reported.Process, t.refused = nil, config{}
	}
}

// listening reports whether the port of the specification is open.
func (t *tunnel) listening() bool { return t.socket != nil && t.socket.address == t.desired.Accept }

func (t *tunnel) socketOpened(l *listener) {
	t.socket, t.armed, t.listenAt = l, false, time.Time{}
	if t.reported.Process.Is(tunnelspec.ReasonPortTaken) {
		t.reported.Process = nil
	}
	t.clearProcessProblem()
}

// portTaken records that another process or tunnel has the port. It reports whether that is a new problem.
func (t *tunnel) portTaken(message string, now time.Time) (isNew bool) {
	t.listenAt = now.Add(portRetry)
	if t.reported.Process.Is(tunnelspec.ReasonPortTaken) {
		return false
	}
	t.setProcessProblem(tunnelspec.ReasonPortTaken, message, now)
	return true
}

func (t *tunnel) socketClosed() { t.socket, t.front, t.armed = nil, nil, false }

// stunnelSocket returns the socket that stunnel inherits.
func (t *tunnel) stunnelSocket() *os.File {
	if t.front != nil {
		return t.front.Socket()
	}
	return t.socket.file
}

// connectionWaiting records that a client connects while no process runs.
func (t *tunnel) connectionWaiting() { t.armed, t.needed, t.idleSince = false, true, time.Time{} }

// updateIdle records the number of connected clients; known is false if the count failed.
func (t *tunnel) updateIdle(clients int, known bool, now time.Time) {
	switch {
	case clients > 0 || !known || t.phase != phaseRunning:
		t.idleSince = time.Time{}
	case t.idleSince.IsZero():
		t.idleSince = now
	}
}

func (t *tunnel) started(p *os.Process, c config, now time.Time) {
	t.proc, t.phase, t.deadline = p, phaseStarting, now.Add(answerTimeout)
	t.reported.PID, t.reported.StartedAt, t.reported.Memory = p.Pid, now, 0
	t.current, t.attempted, t.accepted, t.errorLines = c, c, false, nil
	t.retryAt, t.idleSince = time.Time{}, time.Time{}
	t.memoryAt, t.rejected = time.Time{}, 0
	if t.starts > 0 && !t.stoppedIdle {
		t.reported.Restarts++
	}
	t.starts++
	t.stoppedIdle = false
}

// reloading records that SIGHUP was sent.
func (t *tunnel) reloading(c config, now time.Time) {
	t.phase, t.deadline = phaseReloading, now.Add(answerTimeout)
	t.attempted, t.accepted, t.errorLines = c, false, nil
	t.reportServers()
}

// reportServers tells the front, before and after a reload, that it changes the servers: connections that begin
// between the two lead to the old ones or to the new ones.
func (t *tunnel) reportServers() {
	if t.front != nil && !slices.Equal(t.attempted.Connect, t.current.Connect) {
		t.front.ServersChanged()
	}
}

// stopping records that SIGTERM or SIGKILL was sent.
func (t *tunnel) stopping(grace time.Duration, now time.Time) {
	t.phase, t.deadline = phaseStopping, now.Add(grace)
}

// stoppingIdle records that the process is stopped because the tunnel is idle.
func (t *tunnel) stoppingIdle() { t.needed, t.stoppedIdle, t.idleSince = false, true, time.Time{} }

func (t *tunnel) exited(exitStatus string, now time.Time) {
	phase, age := t.phase, now.Sub(t.reported.StartedAt)
	served := !t.reported.RemoteAt.Before(t.reported.StartedAt) // it has completed a TLS handshake with a server
	t.proc, t.phase, t.conns = nil, phaseNone, map[string]conn{}
	t.reported.PID, t.reported.StartedAt, t.reported.Memory = 0, time.Time{}, 0
	if phase == phaseStopping {
		t.retryAt = time.Time{}
		return
	}
	switch {
	case age >= stableAfter:
		t.deaths = 0
	case served:
		t.deaths = min(t.deaths, maxDeathsAfterServing)
	}
	if phase == phaseStarting && !t.accepted && len(t.errorLines) > 0 {
		t.configRefused(strings.Join(t.shownErrors(), "; "), now)
		t.delayStart(now)
		return
	}
	t.died(tunnelspec.ReasonDied, strings.Join(append([]string{exitStatus}, t.shownErrors()...), "; "), now)
}

// connectionAccepted records that stunnel has what a new connection takes.
func (t *tunnel) connectionAccepted() {
	t.rejected = 0
	if t.reported.Process.Is(tunnelspec.ReasonExhausted) {
		t.reported.Process = nil
	}
}

// isExhausted reports whether only another process would accept connections.
func (t *tunnel) isExhausted(now time.Time) bool {
	return t.rejected >= maxRejected && now.Sub(t.reported.StartedAt) >= minRejecting
}

func (t *tunnel) died(reason tunnelspec.Reason, message string, now time.Time) {
	t.setProcessProblem(reason, message, now)
	t.delayStart(now)
}

// delayStart counts a death and sets the earliest time of the next start.
func (t *tunnel) delayStart(now time.Time) {
	t.deaths++
	t.retryAt = now.Add(process.RestartDelay(t.deaths))
}

// configRefused records that stunnel refused the attempted configuration. Retries of the same
// configuration with the same result are one problem.
func (t *tunnel) configRefused(message string, now time.Time) {
	isNew := !t.attempted.sameAs(t.refused) || t.reported.Process == nil || t.reported.Process.Message != message
	t.refused, t.refusedAt = t.attempted, now
	if isNew {
		t.setProcessProblem(tunnelspec.ReasonBadConfig, message, now)
	}
}

func (t *tunnel) setProcessProblem(reason tunnelspec.Reason, message string, now time.Time) {
	t.reported.Process = &tunnelspec.Problem{Reason: reason, Message: message, At: now}
	t.reported.Problems[reason]++
}

// configApplied ends a start or a reload: stunnel serves with the configuration.
func (t *tunnel) configApplied() {
	if t.phase == phaseReloading {
		t.reported.Reloads++
		t.reportServers()
	}
	t.phase, t.current = phaseRunning, t.attempted
	t.clearProcessProblem()
}

// isRefused reports whether stunnel has refused the desired configuration.
func (t *tunnel) isRefused() bool { return t.refused.isSet() && t.desired.sameAs(t.refused) }
