package agent

import (
	"net/netip"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// healthyAfter is how long probes must succeed before an event says that a tunnel is healthy again.
const healthyAfter = 30 * time.Second

// handleResult judges the result of a probe. It returns whether a sync is needed at once.
func (a *Agent) handleResult(result probe.Result) bool {
	state, ok := a.tunnels[result.Name]
	if !ok || state.Accept != result.Accept {
		return false // the tunnel was removed or changed
	}
	if result.Late {
		a.metrics.late.Inc()
		return false
	}
	state.result = &result
	a.metrics.probed(result)
	if state.inForce.IsZero() || result.Began.Before(state.inForce) {
		return false // its process is starting or has ended, which the supervisor's status says
	}
	if isHijacked(state) {
		a.reportHealth(state)
		return false // the answer is another process', and says nothing about the tunnel
	}
	memory, step := a.memories[result.Name].After(a.findingOf(result, state), state.Nearest)
	a.memories[result.Name] = memory
	a.reportHealth(state)
	if step == routing.Stay {
		return false
	}
	a.reportStep(state, memory, step)
	state.inForce = time.Time{} // results of probes that run now are about the earlier specification
	return true
}

// isHijacked says whether new connections to the tunnel's port lead out of the node's network.
func isHijacked(state *tunnelState) bool {
	return state.result != nil && probe.Reason(state.result.Err) == probe.ReasonHijacked
}

func (a *Agent) findingOf(r probe.Result, state *tunnelState) routing.Finding {
	status := a.status.Tunnels[state.Name]
	f := routing.Finding{
		At: r.At, Well: r.Err == nil, Silent: probe.Reason(r.Err) == probe.ReasonTimeout,
		Stuck: r.Stuck, Established: r.Established, Direct: map[netip.Addr]routing.Answer{},
		Open: len(status.Servers) > 0, Unproven: isUnproven(status.Connection),
	}
	silent := map[netip.Addr]bool{}
	for server, err := range r.Direct {
		f.Direct[server.Addr()] = answerOf(err)
		silent[server.Addr()] = isSilent(err)
	}
	for _, target := range a.strays(state) {
		f.Astray = f.Astray || target.Distance > state.Nearest[0].Distance
		f.Stuck = f.Stuck || f.Well && silent[target.Address]
	}
	for _, server := range a.unlisted(state) {
		f.Stuck = f.Stuck || f.Well && silent[server.Addr()]
	}
	return f
}

// isSilent says whether the server does not answer at all. One that refuses new connections may
// still serve open ones.
func isSilent(err error) bool {
	reason := probe.Reason(err)
	return reason == probe.ReasonTimeout || reason == probe.ReasonUnreachable
}

// strays are mount targets to which the tunnel has open connections, though new ones go to the
// active one: stunnel tried the next server when the first one refused, and the kernel keeps a
// connection for as long as it is used.
func (a *Agent) strays(state *tunnelState) []routing.MountTarget {
	var strays []routing.MountTarget
	for _, target := range state.Nearest {
		connected := func(server netip.AddrPort) bool { return server.Addr().Unmap() == target.Address }
		if target != state.Active && slices.ContainsFunc(a.status.Tunnels[state.Name].Servers, connected) {
			strays = append(strays, target)
		}
	}
	return strays
}

// unlisted are servers to which the tunnel has open connections, but which are not in the table any
// more: a mount target is removed from it while it is being deleted and still serves. The tunnel is
// restarted only when such a server is silent: the agent cannot tell when no write is under way.
func (a *Agent) unlisted(state *tunnelState) []netip.AddrPort {
	var unlisted []netip.AddrPort
	for _, server := range a.status.Tunnels[state.Name].Servers {
		server = netip.AddrPortFrom(server.Addr().Unmap(), server.Port())
		listed := func(target routing.MountTarget) bool { return target.Address == server.Addr() }
		if !slices.ContainsFunc(state.Nearest, listed) {
			unlisted = append(unlisted, server)
		}
	}
	return unlisted
}

// answerOf classifies a direct connection of the agent. Only stunnel can tell for certain whether
// a server is to be trusted, as it verifies certificates by OpenSSL's rules, and whether the server
// allows the tunnel's client certificate.
func answerOf(err error) routing.Answer {
	switch probe.Reason(err) {
	case "":
		return routing.Answers
	case probe.ReasonCertificate, probe.ReasonHandshake:
		return routing.Unproven
	case probe.ReasonDenied, probe.ReasonOther:
		return routing.Unclear
	}
	return routing.Dead
}

// isUnproven says whether the server could not prove who it is. That it refuses the client
// certificate does not count: the file system policy is the same at all mount targets.
func isUnproven(p *supervise.Problem) bool {
	if p == nil {
		return false
	}
	switch p.Reason {
	case supervise.ReasonCertificateHostMismatch, supervise.ReasonCertificateExpired,
		supervise.ReasonCertificateUntrusted, supervise.ReasonTLSVersion, supervise.ReasonNotTLS,
		supervise.ReasonHandshakeFailed:
		return true
	}
	return false
}
