package routing

import (
	"net/netip"
	"slices"
	"time"
)

// Memory is what is kept of a tunnel from one plan to the next, and on disk for the agent's next
// life. The zero Memory is that of a new tunnel.
type Memory struct {
	Port int `json:"port"`
	// Serial is raised to have the tunnel's process restarted.
	Serial int `json:"serial,omitempty"`
	// First is the mount target that is tried before all others; none for the nearest.
	First netip.Addr `json:"first,omitzero"`
	// Standby: another pod has the port, so the tunnel proves itself beside it.
	Standby bool `json:"standby,omitempty"`
	// Bare: it shows no client certificate.
	Bare bool `json:"bare,omitempty"`
	// GoneSince is when the target left the table.
	GoneSince time.Time `json:"goneSince,omitzero"`

	RestartedAt time.Time `json:"restartedAt,omitzero"`
	// Restarts are those since the tunnel was last well for a good while.
	Restarts int `json:"restarts,omitempty"`
	// Doubts are the rounds in a row in which it was of no use although its mount target answers.
	Doubts int `json:"doubts,omitempty"`
	// WellSince and FailingSince: one of them is zero, before the first probe both.
	WellSince    time.Time `json:"wellSince,omitzero"`
	FailingSince time.Time `json:"failingSince,omitzero"`
	// NearestWellSince is since when the nearest mount target has answered each time, while
	// the tunnel, or an old connection of it, leads to another one.
	NearestWellSince time.Time `json:"nearestWellSince,omitzero"`
}

// ordered puts the first mount target before the others, which are in order of distance.
func (m Memory) ordered(nearest []MountTarget) []MountTarget {
	i := slices.IndexFunc(nearest, func(t MountTarget) bool { return t.Address == m.First })
	if i <= 0 {
		return nearest // which is also right when the first one has left the table
	}
	order := []MountTarget{nearest[i]}
	order = append(order, nearest[:i]...)
	return append(order, nearest[i+1:]...)
}

// away says whether the tunnel leads farther than it must.
func (m Memory) away(nearest []MountTarget) bool {
	return len(nearest) > 0 && m.ordered(nearest)[0].Distance > nearest[0].Distance
}
