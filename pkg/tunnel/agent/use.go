package agent

import (
	"net/netip"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const (
	// usesInterval is between two questions to the kernel.
	usesInterval = time.Second
	// useLife is how long a tunnel counts as used after its last connection: while a mount target is
	// silent or a process is restarted, the kernel waits for a connection and has none.
	useLife = time.Minute
)

// lookAtUses notes which tunnels are used: somebody but the agent is connected to their ports, here
// or, before this pod has them, in another pod.
func (a *Agent) lookAtUses(now time.Time) {
	if now.Sub(a.usesAt) < usesInterval {
		return
	}
	a.usesAt = now
	uses, err := a.options.Clients()
	if err != nil && !a.usesUnknown {
		a.options.Log.Warn("connections of this node cannot be seen; all tunnels count as used", "err", err)
	}
	a.usesUnknown = err != nil
	address := netip.MustParseAddr(wellknown.LoopbackAddress)
	for _, state := range a.tunnels {
		if a.usesUnknown || uses[netip.AddrPortFrom(address, uint16(state.Port))] > 0 {
			state.usedAt = now
		}
	}
}

// inUse says whether anybody but the agent has, or just had, connections through a tunnel.
func (t *tunnelState) inUse(now time.Time) bool {
	return !t.usedAt.IsZero() && now.Sub(t.usedAt) < useLife
}
