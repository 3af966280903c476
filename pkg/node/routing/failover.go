package routing

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
)

// Times of failover.
const (
	// returnAfter is how long the nearest mount target must answer before a tunnel returns to it, and
	// the least time between a restart and a return.
	returnAfter = 5 * time.Minute
	resetAfter  = 10 * time.Minute // how long a tunnel must be healthy before its restart backoff is reset
	// unknownAfter is how long a tunnel must time out before it fails over to a mount target of which
	// it is unknown whether it answers.
	unknownAfter = time.Minute
	// suspectThreshold is the number of consecutive suspect rounds that restart a tunnel. After a loss
	// of a few seconds TCP recovers by itself, at the sixth second; the second round ends later.
	suspectThreshold = 2
	// closedThreshold is the number of consecutive suspect rounds that restart a tunnel which closes new
	// connections. One that its server closed, or that met a restart of stunnel, is followed by others.
	closedThreshold = 5
	// The first restart does not wait; each further one waits twice as long as the one before.
	firstBackoff = 15 * time.Second
	maxBackoff   = 16 * time.Minute
)

// DirectResult is the result of probing a mount target without the tunnel.
type DirectResult int

// Results of direct probes.
const (
	// DirectUnknown: it was not probed, its reply was not understood, or it denied access. Access is
	// denied by the file system's policy, which is the same at all mount targets.
	DirectUnknown DirectResult = iota
	DirectAnswered
	DirectDown
	// DirectHandshakeFailed includes a certificate that could not be verified.
	DirectHandshakeFailed
)

// Observation is the result of one round of probes.
type Observation struct {
	At       time.Time
	Healthy  bool // a new connection through the tunnel was answered
	TimedOut bool // when not Healthy: the new connection timed out rather than being closed
	// Stuck: a new connection is answered, but an older one, or the mount target of an older one,
	// times out. The NFS client's connection may be as old.
	Stuck           bool
	HandshakeFailed bool                        // the supervisor reports that stunnel's TLS handshakes fail
	HasConnections  bool                        // the supervisor reports open connections, whether or not they are answered
	FarConnection   bool                        // a connection is open to a mount target that is farther than the nearest
	Established     bool                        // an older connection is answered although new ones fail
	Direct          map[netip.Addr]DirectResult // by mount target
}

// Action is what an observation leads to. Its values are those of the metric's label.
type Action string

// Actions. All except Reorder restart the tunnel, which cuts its connections.
const (
	NoAction Action = ""
	Reorder  Action = "Reorder"  // another mount target for new connections; open ones stay
	Failover Action = "Failover" // another mount target for all connections
	Restart  Action = "Renew"    // new connections to the same mount target
	Return   Action = "Return"   // the nearest mount target for all connections
)

// Next returns the state of a tunnel after a round of probes, and what to do. targets are its mount
// targets, nearest first; "its mount target" is the one that stunnel tries first.
//
//	observation                                            action
//	healthy                                                none; return after a while
//	healthy, but its mount target is down                  reorder, if another one answers
//	new connections fail, an old one is answered           the same, because open connections are
//	                                                       not cut; also if the mount target's
//	                                                       handshake fails
//	fails, its mount target is down, another answers       failover to the nearest that answers
//	fails, its mount target's handshake fails, another     the same; reorder while any connection
//	answers                                                is open
//	old connections stuck, new ones answered               restart, in the second consecutive round
//	times out, though its mount target answers             the same
//	closes connections at once, though its mount target    restart, in the fifth consecutive round
//	answers, and no connection is open
//	stunnel's handshakes fail, though its mount target     as if the direct handshake failed, in
//	answers                                                the second consecutive round
//	times out for a minute, others unknown                 failover to the nearest unknown one
//	fails, and all are down or deny access                 none: a restart would not help
func (s State) Next(o Observation, targets []MountTarget) (State, Action) {
	if len(targets) == 0 {
		return s, NoAction
	}
	s = s.record(o, targets)
	if o.hasWorkingConnection() {
		return s.nextWhileWorking(o, targets)
	}
	if o.At.Before(s.nextRestart()) {
		return s, NoAction
	}
	return s.nextWhileFailing(o, targets)
}

// hasWorkingConnection reports whether a restart would cut a connection that works.
func (o Observation) hasWorkingConnection() bool { return o.Healthy && !o.Stuck || o.Established }

// isSuspect reports whether the tunnel failed although its mount target answered.
func (o Observation) isSuspect(current MountTarget) bool {
	return !o.hasWorkingConnection() &&
		(o.Stuck || o.Direct[current.Address] == DirectAnswered && (o.TimedOut || o.HandshakeFailed || !o.HasConnections))
}

// isClosed reports whether stunnel closes new connections while nothing speaks against its mount target,
// as it does when it has no memory left, and a restart would cut no connection.
func (o Observation) isClosed(current MountTarget) bool {
	return !o.Healthy && !o.TimedOut && !o.HandshakeFailed && !o.HasConnections && o.Direct[current.Address] == DirectAnswered
}

func (s State) record(o Observation, targets []MountTarget) State {
	if o.Healthy {
		s.HealthySince, s.FailingSince = cmp.Or(s.HealthySince, o.At), time.Time{}
	} else {
		s.HealthySince, s.FailingSince = time.Time{}, cmp.Or(s.FailingSince, o.At)
	}
	current := s.connectOrder(targets)[0]
	s.SuspectRounds++
	if !o.isSuspect(current) {
		s.SuspectRounds = 0
	}
	if o.Healthy && o.At.Sub(s.HealthySince) >= resetAfter {
		s.Restarts = 0
	}
	nearest, probed := o.Direct[targets[0].Address]
	switch {
	case current.Distance <= targets[0].Distance && !o.FarConnection, probed && nearest != DirectAnswered:
		s.NearestHealthySince = time.Time{}
	case probed:
		s.NearestHealthySince = cmp.Or(s.NearestHealthySince, o.At)
	}
	return s
}

// nextWhileWorking restarts the tunnel only to return to the nearest mount target.
func (s State) nextWhileWorking(o Observation, targets []MountTarget) (State, Action) {
	current := o.Direct[s.connectOrder(targets)[0].Address]
	if current == DirectDown || current == DirectHandshakeFailed && !o.Healthy {
		if next, ok := firstWith(s.connectOrder(targets), o, DirectAnswered); ok {
			return s.prefer(next, targets), Reorder
		}
		return s, NoAction
	}
	if o.Healthy && !s.NearestHealthySince.IsZero() &&
		o.At.Sub(s.NearestHealthySince) >= returnAfter && o.At.Sub(s.RestartedAt) >= returnAfter {
		return s.prefer(targets[0], targets).restart(o.At), Return
	}
	return s, NoAction
}

// nextWhileFailing is for a tunnel without a working connection, so that a restart loses nothing.
func (s State) nextWhileFailing(o Observation, targets []MountTarget) (State, Action) {
	order := s.connectOrder(targets)
	current := order[0]
	next, found := firstWith(order[1:], o, DirectAnswered)
	switch {
	case o.Direct[current.Address] == DirectDown && found:
		return s.prefer(next, targets).restartWithBackoff(o.At), Failover
	case s.handshakeFailed(o, current) && found && o.HasConnections:
		return s.prefer(next, targets), Reorder
	case s.handshakeFailed(o, current) && found:
		return s.prefer(next, targets).restartWithBackoff(o.At), Failover
	case o.Stuck, o.TimedOut && o.Direct[current.Address] == DirectAnswered:
		if s.SuspectRounds < suspectThreshold {
			return s, NoAction
		}
		return s.restartWithBackoff(o.At), Restart
	case o.isClosed(current) && s.SuspectRounds >= closedThreshold:
		return s.restartWithBackoff(o.At), Restart
	case !o.TimedOut || o.At.Sub(s.FailingSince) < unknownAfter:
		return s, NoAction
	}
	if next, found = firstWith(order[1:], o, DirectUnknown, DirectHandshakeFailed); found {
		return s.prefer(next, targets).restartWithBackoff(o.At), Failover
	}
	return s, NoAction
}

// handshakeFailed reports whether the mount target's TLS handshake fails. Where it fails only for
// stunnel, which verifies by other rules than the agent, it takes suspectThreshold rounds: the
// supervisor may report a handshake of some time ago.
func (s State) handshakeFailed(o Observation, current MountTarget) bool {
	direct := o.Direct[current.Address]
	onlyForStunnel := direct == DirectAnswered && o.HandshakeFailed && s.SuspectRounds >= suspectThreshold
	return !o.Healthy && (direct == DirectHandshakeFailed || onlyForStunnel)
}

func firstWith(order []MountTarget, o Observation, results ...DirectResult) (MountTarget, bool) {
	for _, t := range order {
		if slices.Contains(results, o.Direct[t.Address]) {
			return t, true
		}
	}
	return MountTarget{}, false
}

func (s State) prefer(target MountTarget, targets []MountTarget) State {
	s.Preferred = target.Address
	if target.Address == targets[0].Address {
		s.Preferred = netip.Addr{}
	}
	s.NearestHealthySince = time.Time{}
	return s
}

// restartWithBackoff delays the restart after it, which a return does not.
func (s State) restartWithBackoff(now time.Time) State {
	s.Restarts++
	return s.restart(now)
}

func (s State) restart(now time.Time) State {
	s.RestartSerial++
	s.SuspectRounds = 0
	s.RestartedAt = now
	return s
}

func (s State) nextRestart() time.Time {
	if s.Restarts == 0 {
		return time.Time{}
	}
	wait := firstBackoff
	for range s.Restarts - 1 {
		wait = min(2*wait, maxBackoff)
	}
	return s.RestartedAt.Add(wait)
}

// State is what the agent keeps of a tunnel between plans. It is also stored on disk, for the next
// start of the agent. The zero State is that of a new tunnel.
type State struct {
	Port          int `json:"port"`
	RestartSerial int `json:"serial,omitempty"` // increased to have the supervisor restart the tunnel's process
	// Preferred is the mount target that stunnel tries first; the zero Addr for the nearest.
	Preferred netip.Addr `json:"first,omitzero"`
	// Standby: another pod has the port, so the tunnel listens and is probed on another address.
	Standby            bool `json:"standby,omitempty"`
	WithoutCertificate bool `json:"bare,omitempty"` // the tunnel has no client certificate
	// Identity is what its client certificate should contain, as the table last had it.
	Identity clientcert.Identity `json:"identity,omitzero"`
	// MissingSince is when the target left the table, or the tunnel was last used after that.
	MissingSince time.Time `json:"goneSince,omitzero"`

	RestartedAt time.Time `json:"restartedAt,omitzero"`
	// Restarts counts those since the tunnel was last healthy for resetAfter, for the backoff.
	Restarts int `json:"restarts,omitempty"`
	// SuspectRounds counts consecutive rounds in which the tunnel failed although its mount target
	// answered.
	SuspectRounds int `json:"doubts,omitempty"`
	// Either HealthySince or FailingSince is zero; before the first probe, both are.
	HealthySince time.Time `json:"wellSince,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	// NearestHealthySince is since when the nearest mount target has answered each probe, while the
	// tunnel, or an old connection of it, uses a farther one.
	NearestHealthySince time.Time `json:"nearestWellSince,omitzero"`
}

// Loaded returns the state with its times measured by the running clock. They were stored as that showed
// them: times in the future are from before the clock was set back, and are dropped. Those that remain are
// unaffected when it is set later.
func (s State) Loaded(now time.Time) State {
	for _, t := range []*time.Time{&s.MissingSince, &s.RestartedAt, &s.HealthySince, &s.FailingSince, &s.NearestHealthySince} {
		switch age := now.Sub(*t); {
		case t.IsZero():
		case age < 0:
			*t = time.Time{}
		default:
			*t = now.Add(-age)
		}
	}
	return s
}

// connectOrder returns the preferred mount target, then the others by distance. A preferred one that
// left the table does not count.
func (s State) connectOrder(targets []MountTarget) []MountTarget {
	i := slices.IndexFunc(targets, func(t MountTarget) bool { return t.Address == s.Preferred })
	if i <= 0 {
		return targets
	}
	return slices.Concat(targets[i:i+1], targets[:i], targets[i+1:])
}
