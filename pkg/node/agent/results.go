package agent

import (
	"net/netip"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// healthyAfter is how long a condition must not be found before it has ended, as that of a tunnel whose
// probes succeed again.
const healthyAfter = 30 * time.Second

// handleResult evaluates the result of a probe. It returns whether a sync is needed at once.
func (a *Agent) handleResult(result probe.Result) bool {
	if a.handlePredecessor(result) {
		return false
	}
	state, ok := a.tunnels[result.Name]
	if !ok || state.Accept != result.Accept {
		return false // the tunnel was removed or changed
	}
	if result.Late {
		a.metrics.late.Inc()
		return false
	}
	state.result, state.resultAt = &result, time.Now()
	a.metrics.probed(result)
	if state.inForce.IsZero() || result.Began.Before(state.inForce) {
		return false // its process is starting or has ended, which the supervisor's status says
	}
	state.judged = state.result
	if isHijacked(state) {
		return false // the answer is another process', and says nothing about the tunnel
	}
	next, action := a.states[result.Name].Next(a.observationOf(result, state), state.MountTargets)
	a.states[result.Name] = next
	if action == routing.NoAction {
		return false
	}
	a.reportAction(state, next, action)
	state.inForce = time.Time{} // results of probes that run now are about the earlier specification
	return true
}

// isHijacked reports whether the node redirects new connections to the tunnel's port.
func isHijacked(state *tunnelState) bool {
	return state.result != nil && probe.Reason(state.result.Err) == tunnelspec.ProbeHijacked
}

func (a *Agent) observationOf(r probe.Result, state *tunnelState) routing.Observation {
	tunnel := a.status.Tunnels[state.Name]
	o := routing.Observation{
		At: r.At, Healthy: r.Err == nil, TimedOut: probe.Reason(r.Err) == tunnelspec.ProbeTimeout,
		Stuck: r.Stuck, Established: r.Established, Direct: map[netip.Addr]routing.DirectResult{},
		HasConnections: len(tunnel.Servers) > 0, HandshakeFailed: handshakeFailed(tunnel.Connection),
	}
	silent := map[netip.Addr]bool{}
	for server, err := range r.Direct {
		o.Direct[server.Addr()] = directResultOf(err)
		silent[server.Addr()] = isSilent(err)
	}
	for _, target := range a.otherConnected(state) {
		o.FarConnection = o.FarConnection || target.Distance > state.MountTargets[0].Distance
		o.Stuck = o.Stuck || o.Healthy && silent[target.Address]
	}
	for _, server := range a.removedServers(state) {
		o.Stuck = o.Stuck || o.Healthy && silent[server.Addr()]
	}
	return o
}

// isSilent reports whether the server does not answer at all. One that refuses new connections may
// still serve open ones.
func isSilent(err error) bool {
	reason := probe.Reason(err)
	return reason == tunnelspec.ProbeTimeout || reason == tunnelspec.ProbeUnreachable
}

// otherConnected returns the mount targets, except the active one, to which the tunnel has open
// connections: stunnel tries the next server when the first one refuses, and the NFS client keeps a
// connection for as long as it is used.
func (a *Agent) otherConnected(state *tunnelState) []routing.MountTarget {
	var others []routing.MountTarget
	for _, target := range state.MountTargets {
		connected := func(server netip.AddrPort) bool { return server.Addr().Unmap() == target.Address }
		if target != state.Active && slices.ContainsFunc(a.status.Tunnels[state.Name].Servers, connected) {
			others = append(others, target)
		}
	}
	return others
}

// removedServers returns servers to which the tunnel has open connections, but which left the table: a
// mount target is removed from the table while it is being deleted and still serves. The tunnel is
// restarted only when the server is silent, because the agent does not know when no write is under way.
func (a *Agent) removedServers(state *tunnelState) []netip.AddrPort {
	var removed []netip.AddrPort
	for _, server := range a.status.Tunnels[state.Name].Servers {
		server = netip.AddrPortFrom(server.Addr().Unmap(), server.Port())
		listed := func(target routing.MountTarget) bool { return target.Address == server.Addr() }
		if !slices.ContainsFunc(state.MountTargets, listed) {
			removed = append(removed, server)
		}
	}
	return removed
}

// directResultOf classifies the error of a direct probe. Whether the tunnel's handshake succeeds is
// certain only from stunnel, which verifies certificates by OpenSSL's rules.
func directResultOf(err error) routing.DirectResult {
	switch probe.Reason(err) {
	case "":
		return routing.DirectAnswered
	case tunnelspec.ProbeCertificate, tunnelspec.ProbeHandshake:
		return routing.DirectHandshakeFailed
	case tunnelspec.ProbeDenied, tunnelspec.ProbeOther:
		return routing.DirectUnknown
	}
	return routing.DirectDown
}

// handshakeFailed reports whether stunnel's TLS handshake with the server failed. A refused client
// certificate does not count: the file system policy is the same at all mount targets.
func handshakeFailed(p *tunnelspec.Problem) bool {
	return p.Is(tunnelspec.ReasonCertificateHostMismatch, tunnelspec.ReasonCertificateExpired,
		tunnelspec.ReasonCertificateUntrusted, tunnelspec.ReasonTLSVersion, tunnelspec.ReasonNotTLS,
		tunnelspec.ReasonHandshakeFailed)
}
