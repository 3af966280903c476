package agent

import (
	"net/netip"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const (
	// clientsInterval is between two listings of connections.
	clientsInterval = time.Second
	// inUseFor is how long a tunnel counts as in use after its last connection: the kernel's client has
	// none while a mount target is silent or a process is restarted.
	inUseFor = time.Minute
)

// observeClients records which tunnels are in use: other clients than the agent are connected
// to their ports, whether this pod or another one listens there.
func (a *Agent) observeClients(now time.Time) {
	if now.Sub(a.clientsAt) < clientsInterval {
		return
	}
	a.clientsAt = now
	uses, err := a.options.Clients()
	if err != nil && !a.clientsUnknown {
		a.options.Log.Warn("connections of this node cannot be listed; all tunnels count as in use", "err", err)
	}
	a.clientsUnknown = err != nil
	address := netip.MustParseAddr(wellknown.LoopbackAddress)
	for _, state := range a.tunnels {
		if a.clientsUnknown || uses[netip.AddrPortFrom(address, uint16(state.Port))] > 0 {
			state.usedAt = now
		}
	}
}

// inUse says whether other clients than the agent have, or just had, connections to the tunnel.
func (t *tunnelState) inUse(now time.Time) bool {
	return !t.usedAt.IsZero() && now.Sub(t.usedAt) < inUseFor
}
