package agent

import (
	"net/netip"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
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
	state.result = &result
	a.metrics.probed(result)
	if state.inForce.IsZero() || result.Began.Before(state.inForce) {
		return false // of a process that is starting, or is none: the supervisor tells of that
	}
	memory, step := a.memories[result.Name].After(findingOf(result), state.Nearest)
	a.memories[result.Name] = memory
	a.tellHealth(state)
	if step == routing.Stay {
		return false
	}
	a.tellStep(state, memory, step)
	state.inForce = time.Time{} // what is under way is about the tunnel as it was
	return true
}

func findingOf(r probe.Result) routing.Finding {
	f := routing.Finding{
		At: r.At, Well: r.Err == nil, Silent: probe.Reason(r.Err) == probe.ReasonTimeout,
		Stuck: r.Stuck, Established: r.Established, Direct: map[netip.Addr]routing.Answer{},
	}
	for server, err := range r.Direct {
		f.Direct[server.Addr()] = answerOf(err)
	}
	return f
}

// answerOf leaves open what only stunnel can say: it judges certificates by OpenSSL's rules, and
// shows one of its own, without which a server may let nobody in.
func answerOf(err error) routing.Answer {
	switch probe.Reason(err) {
	case "":
		return routing.Answers
	case probe.ReasonCertificate, probe.ReasonDenied, probe.ReasonOther:
		return routing.Unclear
	}
	return routing.Dead
}
