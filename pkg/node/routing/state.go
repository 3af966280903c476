package routing

import (
	"net/netip"
	"slices"
	"time"
)

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
	Identity Identity `json:"identity,omitzero"`
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
	order := []MountTarget{targets[i]}
	order = append(order, targets[:i]...)
	return append(order, targets[i+1:]...)
}

// hasNearer reports whether a mount target is nearer than the one that stunnel tries first.
func (s State) hasNearer(targets []MountTarget) bool {
	return len(targets) > 0 && s.connectOrder(targets)[0].Distance > targets[0].Distance
}
