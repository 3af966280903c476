package routing

import (
	"net/netip"
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
	// Each restart in a row waits twice as long as the one before; the first does not wait.
	firstBackoff = 15 * time.Second
	maxBackoff   = 16 * time.Minute
)

// Answer is what a mount target was found to do when it was asked without the tunnel.
type Answer int

// Answers.
const (
	Unclear Answer = iota // not asked, or it speaks and cannot be understood
	Answers
	Dead
)

// Finding is what one round of probes found.
type Finding struct {
	At     time.Time
	Well   bool // a new connection through the tunnel was answered
	Silent bool // when it is not well: nothing came back, rather than that it was closed
	// Stuck: an older connection is silent, or its server is, although a new one is answered.
	// The kernel's may be as old.
	Stuck bool
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
//	new connections fail, an old one is answered          the same: what works is not cut
//	old connections silent, new ones answered             renew
//	fails, its mount target is dead, another answers      failover to the nearest that does
//	silent, though its mount target answers               renew
//	silent for a minute, others unclear                   failover to the next unclear one
//	fails, all are dead, or it is just closed             stay: a restart would mend nothing
func (m Memory) After(f Finding, nearest []MountTarget) (Memory, Step) {
	if len(nearest) == 0 {
		return m, Stay
	}
	m = m.note(f, nearest)
	if f.Well && !f.Stuck || f.Established {
		return m.whileOpen(f, nearest)
	}
	if f.At.Before(m.nextRestart()) {
		return m, Stay
	}
	return m.whileLost(f, nearest)
}

// note keeps since when things are as they are.
func (m Memory) note(f Finding, nearest []MountTarget) Memory {
	if f.Well {
		m.WellSince, m.FailingSince = earlier(m.WellSince, f.At), time.Time{}
	} else {
		m.WellSince, m.FailingSince = time.Time{}, earlier(m.FailingSince, f.At)
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
	current := m.ordered(nearest)[0]
	if f.Direct[current.Address] == Dead {
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
	case f.Stuck, f.Silent && f.Direct[current.Address] == Answers:
		return m.restart(f.At, 1), Renew
	case !f.Silent || f.At.Sub(m.FailingSince) < guessAfter:
		return m, Stay
	}
	if next, found = find(order[1:], f, Unclear); found {
		return m.lead(next, nearest).restart(f.At, 1), Failover
	}
	return m, Stay
}

// find is the first mount target that was found to be so.
func find(order []MountTarget, f Finding, want Answer) (MountTarget, bool) {
	for _, t := range order {
		if f.Direct[t.Address] == want {
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
