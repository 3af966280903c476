package supervise

import (
	"bytes"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// verb is the one thing to do next for a tunnel.
type verb int

const (
	doNothing verb = iota // until something happens, or until the step's time
	doForget              // nothing is left of it
	doLook                // whether the port is free
	doStart               // a process with the configuration
	doReload              // the process with the configuration
	doRestore             // what the process finds in its file when it reads it by itself
	doSettle              // take for done what stunnel does not tell
	doStop                // ask the process to end
	doKill                // end it
)

// step is what to do, with what, and when to ask again if nothing happens; zero for never.
type step struct {
	verb   verb
	config []byte
	at     time.Time
}

// plan decides.
//
//	there was             the file says         next
//	no process            nothing               forget the tunnel
//	no process            a configuration       start it, when the delay is over and the port free
//	the file refused      the same              start the last good one, if there is one
//	running               the same              nothing
//	running               another               reload; connections stay
//	running               another serial        stop, then start
//	running               another address       reload, when that port is free; until then as it was
//	running               refused just now      put back what the process had in its file
//	running               as refused before     nothing, for a while
//	running, port lost    anything              reload, when the port is free
//	starting, reloading   anything              wait for stunnel's answer; without one, stop
//	running               nothing               stop, later kill
func plan(t *tunnel, now time.Time) step {
	switch {
	case t.phase == phaseNone:
		return planStart(t, now)
	case t.phase == phaseStopping && now.Before(t.deadline):
		return step{at: t.deadline}
	case t.phase == phaseStopping:
		return step{verb: doKill}
	case t.want == nil:
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
	config := t.want
	if t.isRefused() && t.good != nil && !bytes.Equal(t.good, t.refused) {
		config = t.good
	}
	switch {
	case t.want == nil:
		return step{verb: doForget}
	case now.Before(t.retryAt):
		return step{at: t.retryAt}
	case now.Before(t.portLookAt):
		return step{at: t.portLookAt}
	case !t.portLooked(now):
		return step{verb: doLook, config: config}
	}
	return step{verb: doStart, config: config}
}

func planRunning(t *tunnel, now time.Time) step {
	switch {
	case now.Before(t.retryAt):
		return step{at: t.retryAt}
	case !bytes.Equal(t.written, t.current):
		return step{verb: doRestore}
	case t.isRefused() && t.listening && now.Before(t.refusedAt.Add(refusedRetry)):
		return step{at: t.refusedAt.Add(refusedRetry)}
	case t.isRefused() && !t.listening:
		return whenFree(t, now, step{verb: doReload, config: t.current})
	case stunnelcfg.Restart(t.want) != stunnelcfg.Restart(t.current) && !t.isRefused():
		return step{verb: doStop}
	case !t.listening, t.moves():
		return whenFree(t, now, step{verb: doReload, config: t.want})
	case bytes.Equal(t.want, t.current):
		return step{}
	}
	return step{verb: doReload, config: t.want}
}

// whenFree looks at the port before it goes on.
func whenFree(t *tunnel, now time.Time, next step) step {
	if now.Before(t.portLookAt) {
		return step{at: t.portLookAt}
	}
	if !t.portLooked(now) {
		return step{verb: doLook, config: next.config}
	}
	return next
}
