package agent

import (
	"net/netip"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// healAfter is how long a tunnel must be well before people are told so: one that comes and
// goes is not.
const healAfter = 30 * time.Second

// learn takes in what a probe found. It says whether something is to be done at once.
func (a *Agent) learn(result probe.Result) bool {
	state, ok := a.tunnels[result.Name]
	if !ok || state.Accept != result.Accept {
		return false // of a tunnel that is no more
	}
	if result.Late {
		a.metrics.late.Inc()
		return false
	}
	state.result = &result
	a.metrics.probed(result)
	if state.inForce.IsZero() || result.Began.Before(state.inForce) {
		return false // of a process that is starting, or is none: the supervisor tells of that
	}
	if isHijacked(state) {
		a.tellHealth(state)
		return false // what answered is not the tunnel, so nothing is known of that
	}
	memory, step := a.memories[result.Name].After(a.findingOf(result, state), state.Nearest)
	a.memories[result.Name] = memory
	a.tellHealth(state)
	if step == routing.Stay {
		return false
	}
	a.tellStep(state, memory, step)
	state.inForce = time.Time{} // what is under way is about the tunnel as it was
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

// isSilent: a server that refuses new connections may well serve those that are open; one of
// which nothing comes back does not.
func isSilent(err error) bool {
	reason := probe.Reason(err)
	return reason == probe.ReasonTimeout || reason == probe.ReasonUnreachable
}

// strays are mount targets that connections of a tunnel are open to, though new ones go
// elsewhere: stunnel tried the next one for a moment in which the first refused, and the kernel
// keeps a connection for as long as it is used.
func (a *Agent) strays(state *tunnelState) []routing.MountTarget {
	var strays []routing.MountTarget
	for _, target := range state.Nearest {
		leads := func(server netip.AddrPort) bool { return server.Addr().Unmap() == target.Address }
		if target != state.Active && slices.ContainsFunc(a.status.Tunnels[state.Name].Servers, leads) {
			strays = append(strays, target)
		}
	}
	return strays
}

// unlisted are servers that connections are open to although the table has them no more: it drops
// a mount target while that is being deleted, and still serves. The tunnel is restarted when one
// of them falls silent, and not before: whether the kernel is writing is not known here, so there
// is no moment of which one could say that a restart costs nothing.
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

// answerOf leaves open what only stunnel can say: it judges certificates by OpenSSL's rules, and
// shows one of its own, without which a server may let nobody in.
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

// isUnproven leaves out the certificate that stunnel shows: who is let in is the file system's
// policy, and the same at all of its mount targets.
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
