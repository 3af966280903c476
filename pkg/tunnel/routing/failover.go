package routing

import (
	"net/netip"
	"slices"
	"time"
)

// Times of failover.
const (
	// returnAfter is how long the nearest mount target must answer before a tunnel that leads
	// elsewhere returns, and so the least time between two returns.
	returnAfter = 5 * time.Minute
	// forgiveAfter is how long a tunnel must be well for its restarts to be forgotten.
	forgiveAfter = 10 * time.Minute
	// guessAfter is how long nothing must have come back before a mount target is tried of
	// which is not known whether it answers.
	guessAfter = time.Minute
	// provenBy is in how many rounds in a row connections must be silent, or fail, although the
	// mount target answers, for the process to be restarted. After a loss of a few seconds the
	// kernel's connection recovers by itself, at the sixth second; the second round ends later.
	provenBy = 2
	// Each restart in a row waits twice as long as the one before; the first does not wait.
	firstBackoff = 15 * time.Second
	maxBackoff   = 16 * time.Minute
)

// Answer is what a mount target was found to do when it was asked without the tunnel.
type Answer int

// Answers.
const (
	// Unclear: it was not asked, or it speaks and cannot be understood, or it denies access. That
	// is the policy of the file system, which is the same at all of its mount targets.
	Unclear Answer = iota
	Answers
	Dead
	// Unproven: there was no TLS connection, because its certificate or the handshake failed.
	Unproven
)

// Finding is what one round of probes found.
type Finding struct {
	At     time.Time
	Well   bool // a new connection through the tunnel was answered
	Silent bool // when it is not well: nothing came back, rather than that it was closed
	// Stuck: an older connection is silent, or its server is, although a new one is answered.
	// The kernel's may be as old.
	Stuck bool
	// Unproven: stunnel's own handshakes fail, by the word of the supervisor.
	Unproven bool
	// Open: the supervisor knows of connections that are open, whether they are answered or not.
	Open bool
	// Astray: a connection is open to a mount target that is farther than the nearest.
	Astray bool
	// Established: an older connection is answered although no new one is.
	Established bool
	Direct      map[netip.Addr]Answer
}

// Step is what a finding leads to.
type Step string

// Steps.
const (
	Stay     Step = ""
	Reorder  Step = "Reorder"  // new connections go elsewhere, old ones stay
	Failover Step = "Failover" // restarted, so that all connections go elsewhere
	Renew    Step = "Renew"    // restarted as it is, so that connections begin anew
	Return   Step = "Return"   // restarted, so that all connections go to the nearest
)

// After is the memory of a tunnel after a round of probes. nearest are its mount targets in
// order of distance.
//
//	                                                      step
//	well                                                  stay; return after a while
//	well, but the mount target tried first is dead        reorder, if another one answers
//	new connections fail, an old one is answered          the same: what works is not cut; also
//	                                                      if the first is unproven
//	fails, its mount target is dead, another answers      failover to the nearest that does
//	fails, its mount target is unproven, another answers  the same; reorder while any connection
//	                                                      is open
//	old connections silent, new ones answered             renew, in the second round in a row
//	silent, though its mount target answers               the same
//	stunnel's handshakes fail, though its mount target    as if it were unproven, in the second
//	answers                                               round in a row
//	silent for a minute, others unclear                   failover to the next unclear one
//	fails, all are dead, it is just closed, or denied     stay: a restart would mend nothing
func (m Memory) After(f Finding, nearest []MountTarget) (Memory, Step) {
	if len(nearest) == 0 {
		return m, Stay
	}
	m = m.note(f, nearest)
	if f.isOpen() {
		return m.whileOpen(f, nearest)
	}
	if f.At.Before(m.nextRestart()) {
		return m, Stay
	}
	return m.whileLost(f, nearest)
}

// isOpen says whether there is something that a restart would cut.
func (f Finding) isOpen() bool { return f.Well && !f.Stuck || f.Established }

// isDoubtful says whether the tunnel is of no use although its mount target answers.
func (f Finding) isDoubtful(current MountTarget) bool {
	return !f.isOpen() && (f.Stuck || f.Direct[current.Address] == Answers && (f.Silent || f.Unproven))
}

// note keeps since when things are as they are.
func (m Memory) note(f Finding, nearest []MountTarget) Memory {
	if f.Well {
		m.WellSince, m.FailingSince = earlier(m.WellSince, f.At), time.Time{}
	} else {
		m.WellSince, m.FailingSince = time.Time{}, earlier(m.FailingSince, f.At)
	}
	if f.isDoubtful(m.ordered(nearest)[0]) {
		m.Doubts++
	} else {
		m.Doubts = 0
	}
	if f.Well && f.At.Sub(m.WellSince) >= forgiveAfter {
		m.Restarts = 0
	}
	answer, asked := f.Direct[nearest[0].Address]
	switch {
	case !m.away(nearest) && !f.Astray, asked && answer != Answers:
		m.NearestWellSince = time.Time{}
	case asked:
		m.NearestWellSince = earlier(m.NearestWellSince, f.At)
	}
	return m
}

func earlier(since, now time.Time) time.Time {
	if since.IsZero() {
		return now
	}
	return since
}

// whileOpen cuts nothing, but for the return.
func (m Memory) whileOpen(f Finding, nearest []MountTarget) (Memory, Step) {
	answer := f.Direct[m.ordered(nearest)[0].Address]
	if answer == Dead || answer == Unproven && !f.Well {
		if next, ok := find(m.ordered(nearest), f, Answers); ok {
			return m.lead(next, nearest), Reorder
		}
		return m, Stay
	}
	if f.Well && !m.NearestWellSince.IsZero() &&
		f.At.Sub(m.NearestWellSince) >= returnAfter && f.At.Sub(m.RestartedAt) >= returnAfter {
		return m.lead(nearest[0], nearest).restart(f.At, 0), Return
	}
	return m, Stay
}

// whileLost is for tunnels whose connections are of no use, so that a restart loses nothing.
func (m Memory) whileLost(f Finding, nearest []MountTarget) (Memory, Step) {
	order := m.ordered(nearest)
	current := order[0]
	next, found := find(order[1:], f, Answers)
	switch {
	case f.Direct[current.Address] == Dead && found:
		return m.lead(next, nearest).restart(f.At, 1), Failover
	case m.isUnproven(f, current) && found && f.Open:
		return m.lead(next, nearest), Reorder
	case m.isUnproven(f, current) && found:
		return m.lead(next, nearest).restart(f.At, 1), Failover
	case f.Stuck, f.Silent && f.Direct[current.Address] == Answers:
		return m.renew(f)
	case !f.Silent || f.At.Sub(m.FailingSince) < guessAfter:
		return m, Stay
	}
	if next, found = find(order[1:], f, Unclear, Unproven); found {
		return m.lead(next, nearest).restart(f.At, 1), Failover
	}
	return m, Stay
}

// isUnproven believes stunnel, which judges by other rules than the agent, when it says so twice:
// its word may be about a handshake of some time ago.
func (m Memory) isUnproven(f Finding, current MountTarget) bool {
	switch f.Direct[current.Address] {
	case Unproven:
		return !f.Well
	case Answers:
		return !f.Well && f.Unproven && m.Doubts >= provenBy
	case Unclear, Dead:
	}
	return false
}

func (m Memory) renew(f Finding) (Memory, Step) {
	if m.Doubts < provenBy {
		return m, Stay
	}
	return m.restart(f.At, 1), Renew
}

// find is the first mount target that was found to be so.
func find(order []MountTarget, f Finding, want ...Answer) (MountTarget, bool) {
	for _, t := range order {
		if slices.Contains(want, f.Direct[t.Address]) {
			return t, true
		}
	}
	return MountTarget{}, false
}

// lead has a mount target tried first.
func (m Memory) lead(to MountTarget, nearest []MountTarget) Memory {
	m.First = to.Address
	if to.Address == nearest[0].Address {
		m.First = netip.Addr{}
	}
	m.NearestWellSince = time.Time{}
	return m
}

// restart raises the serial. A return is no sign of trouble, and counts 0.
func (m Memory) restart(now time.Time, counts int) Memory {
	m.Serial++
	m.Restarts += counts
	m.Doubts = 0
	m.RestartedAt = now
	return m
}

func (m Memory) nextRestart() time.Time {
	if m.Restarts == 0 {
		return time.Time{}
	}
	wait := firstBackoff
	for range m.Restarts - 1 {
		wait = min(2*wait, maxBackoff)
	}
	return m.RestartedAt.Add(wait)
}
