package supervise

import "time"

// verb is the one thing to do next for a tunnel.
type verb int

const (
	doNothing verb = iota // until something happens, or until the step's time
	doForget              // nothing is left of it
	doListen              // open the port
	doLetGo               // close it
	doArm                 // have the next connection told
	doStart               // a process with the configuration
	doReload              // the process with the configuration
	doSettle              // take for done what stunnel does not tell
	doRest                // end the process, as nobody uses it
	doStop                // ask the process to end
	doKill                // end it
)

// step is what to do, with what, and when to ask again if nothing happens; zero for never.
type step struct {
	verb   verb
	config config
	at     time.Time
}

// plan decides.
//
//	there was               the agent asks for   next
//	no process              nothing              close the port, forget the tunnel
//	no process, port shut   a tunnel             listen
//	no process, port open   a tunnel             wait for a connection; then start, when the delay
//	                                             is over
//	no process, long delay  a tunnel             close the port until the next start
//	what it refused         the same             start the last good one, if there is one
//	running                 the same             nothing; end the process when it is idle
//	running                 another              reload; connections stay
//	running                 another serial       stop, then start
//	running                 another address      listen there, then stop, then start; until the port
//	                                             can be had as it was
//	running                 as refused before    nothing, for a while
//	starting, reloading     anything             wait for stunnel's answer; without one, stop
//	running                 nothing              stop, later kill
func plan(t *tunnel, now time.Time) step {
	switch {
	case t.phase == phaseNone:
		return planStart(t, now)
	case t.phase == phaseStopping && now.Before(t.deadline):
		return step{at: t.deadline}
	case t.phase == phaseStopping:
		return step{verb: doKill}
	case !t.want.exists():
		return step{verb: doStop}
	case t.phase == phaseRunning:
		return planRunning(t, now)
	case now.Before(t.deadline):
		return step{at: t.deadline}
	case t.accepted:
		return step{verb: doSettle}
	}
	return step{verb: doStop} // it hangs
}

func planStart(t *tunnel, now time.Time) step {
	waits := t.needed && now.Before(t.retryAt)
	switch {
	case !t.want.exists() && t.socket != nil:
		return step{verb: doLetGo}
	case !t.want.exists():
		return step{verb: doForget}
	case waits && t.socket != nil && t.retryAt.Sub(now) > holdTime:
		return step{verb: doLetGo}
	case waits:
		return step{at: t.retryAt}
	case !t.listening() && now.Before(t.listenAt):
		return step{at: t.listenAt}
	case !t.listening():
		return step{verb: doListen}
	case t.needed && t.isRefused() && t.good.exists() && !t.good.is(t.refused) && t.good.Accept == t.want.Accept:
		return step{verb: doStart, config: t.good}
	case t.needed:
		return step{verb: doStart, config: t.want}
	case !t.armed:
		return step{verb: doArm}
	}
	return step{}
}

func planRunning(t *tunnel, now time.Time) step {
	switch {
	case now.Before(t.retryAt):
		return step{at: t.retryAt}
	case t.isIdle(now):
		return step{verb: doRest}
	case !t.listening() && now.Before(t.listenAt):
		return step{at: t.listenAt}
	case !t.listening():
		return step{verb: doListen}
	case t.isRefused() && now.Before(t.refusedAt.Add(refusedRetry)):
		return step{at: t.refusedAt.Add(refusedRetry)}
	case t.current.Accept != t.want.Accept, t.current.Restart != t.want.Restart && !t.isRefused():
		return step{verb: doStop}
	case t.current.is(t.want):
		return step{at: t.idleAt()}
	}
	return step{verb: doReload, config: t.want}
}

// idleAt is when the process may end if nobody connects until then, zero for never.
func (t *tunnel) idleAt() time.Time {
	if t.idle == 0 || t.idleSince.IsZero() {
		return time.Time{}
	}
	return t.idleSince.Add(t.idle)
}
