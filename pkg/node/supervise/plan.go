package supervise

import "time"

// verb is the kind of the next step of a tunnel.
type verb int

const (
	doNothing verb = iota // until an event, or until step.at
	doRemove              // drop the tunnel and its configuration file
	doListen              // open the port
	doClosePort
	doArm         // request a notification of the next connection
	doStart       // start stunnel with step.config
	doReload      // have stunnel reload step.config
	doAssumeReady // count stunnel as ready without its line
	doStopIdle    // send SIGTERM, because the tunnel is idle
	doStop        // send SIGTERM
	doKill        // send SIGKILL
)

// step is what to do next. For doNothing, at is when to plan again without an event, zero for never.
type step struct {
	verb   verb
	config config
	at     time.Time
}

// plan returns the next step of a tunnel.
//
//	observed                   desired          step
//	no process                 no tunnel        close the port, remove the tunnel
//	no process, port closed    a tunnel         listen
//	no process, port open      a tunnel         wait for a connection and the end of the restart
//	                                            delay, then start
//	no process, long delay     a tunnel         close the port until the next start
//	configuration refused      unchanged        start with the last good configuration, if any
//	running                    unchanged        none; stop the process when the tunnel is idle
//	running                    other options    reload, which keeps connections
//	running                    other serial     stop, then start
//	rejects connections        anything         stop, then start
//	running                    other address    listen there, stop, then start; the process keeps
//	                                            the old port until the new one is free
//	running                    refused config   none until the retry
//	starting, reloading        anything         wait for stunnel; stop it at the deadline
//	running                    no tunnel        stop, kill at the deadline
func plan(t *tunnel, now time.Time) step {
	switch {
	case t.phase == phaseNone:
		return planStart(t, now)
	case t.phase == phaseStopping && now.Before(t.deadline):
		return step{at: t.deadline}
	case t.phase == phaseStopping:
		return step{verb: doKill}
	case !t.desired.isSet():
		return step{verb: doStop}
	case t.phase == phaseRunning:
		return planRunning(t, now)
	case now.Before(t.deadline):
		return step{at: t.deadline}
	case t.accepted:
		return step{verb: doAssumeReady}
	}
	return step{verb: doStop} // stunnel does not respond
}

func planStart(t *tunnel, now time.Time) step {
	waits := t.needed && now.Before(t.retryAt)
	switch {
	case !t.desired.isSet() && t.socket != nil:
		return step{verb: doClosePort}
	case !t.desired.isSet():
		return step{verb: doRemove}
	case waits && t.socket != nil && t.retryAt.Sub(now) > portHoldTime:
		return step{verb: doClosePort}
	case waits:
		return step{at: t.retryAt}
	case !t.listening() && now.Before(t.listenAt):
		return step{at: t.listenAt}
	case !t.listening():
		return step{verb: doListen}
	case t.needed && t.isRefused() && t.lastGood.isSet() && !t.lastGood.sameAs(t.refused) && t.lastGood.Accept == t.desired.Accept:
		return step{verb: doStart, config: t.lastGood}
	case t.needed:
		return step{verb: doStart, config: t.desired}
	case !t.armed:
		return step{verb: doArm}
	}
	return step{}
}

func planRunning(t *tunnel, now time.Time) step {
	idleAt := t.idleAt()
	switch {
	case now.Before(t.retryAt):
		return step{at: t.retryAt}
	case !idleAt.IsZero() && !now.Before(idleAt):
		return step{verb: doStopIdle}
	case t.isExhausted(now):
		return step{verb: doStop}
	case !t.listening() && now.Before(t.listenAt):
		return step{at: t.listenAt}
	case !t.listening():
		return step{verb: doListen}
	case t.isRefused() && now.Before(t.refusedAt.Add(refusedRetry)):
		return step{at: t.refusedAt.Add(refusedRetry)}
	case t.current.Accept != t.desired.Accept, t.current.Restart != t.desired.Restart && !t.isRefused():
		return step{verb: doStop}
	case t.current.sameAs(t.desired):
		return step{at: idleAt}
	}
	return step{verb: doReload, config: t.desired}
}

// idleAt returns when the tunnel becomes idle if no client connects before, zero for never.
func (t *tunnel) idleAt() time.Time {
	if t.idle == 0 || t.idleSince.IsZero() {
		return time.Time{}
	}
	return t.idleSince.Add(t.idle)
}
