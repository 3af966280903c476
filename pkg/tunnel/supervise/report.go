package supervise

import (
	"maps"
	"os"
	"reflect"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// reportDelay is the least time between two writings of the status.
const reportDelay = 100 * time.Millisecond

// statusWriter keeps the status file.
type statusWriter struct {
	prefix    string
	startedAt time.Time
	last      Status    // as written
	at        time.Time // tried
}

func (w *statusWriter) remove() error { return removeFile(StatusFile(w.prefix)) }

// report writes the status if it is another, or old, and says when to ask again.
func (s *supervisor) report(now time.Time) time.Time {
	w := &s.status
	if now.Before(w.at.Add(reportDelay)) {
		return w.at.Add(reportDelay)
	}
	fresh := Status{
		PID: os.Getpid(), StartedAt: w.startedAt, UpdatedAt: w.last.UpdatedAt,
		Stunnel: s.features, Tunnels: s.tunnelStatus(),
	}
	if reflect.DeepEqual(fresh, w.last) && now.Before(w.last.UpdatedAt.Add(StatusInterval-time.Second)) {
		return w.last.UpdatedAt.Add(StatusInterval - time.Second)
	}
	w.at, fresh.UpdatedAt = now, now
	if err := WriteStatus(w.prefix, fresh); err != nil {
		s.options.Log.Warn("status cannot be written", "err", err)
		return now.Add(time.Second)
	}
	w.last = fresh
	return now.Add(StatusInterval - time.Second)
}

func (s *supervisor) tunnelStatus() map[string]Tunnel {
	all := make(map[string]Tunnel, len(s.tunnels))
	for name, t := range s.tunnels {
		all[name] = t.status()
	}
	return all
}

func (t *tunnel) status() Tunnel {
	p := t.problems
	status := Tunnel{
		State: t.state(), Listening: t.listening,
		Restarts: max(0, t.starts-1), Reloads: t.reloads,
		Remote: addressText(p.remote), RemoteAt: p.remoteAt, Servers: p.servers(),
		Process: p.process, Connection: p.connection, Problems: maps.Clone(p.counts),
	}
	if t.proc == nil {
		return status
	}
	status.PID, status.StartedAt = t.proc.PID(), t.startedAt
	if t.phase != phaseStarting {
		status.Accept = addressText(stunnelcfg.Accept(t.current))
		status.Generation = Generation(t.current)
	}
	return status
}

func (t *tunnel) state() State {
	switch t.phase {
	case phaseRunning, phaseReloading:
		return StateRunning
	case phaseStopping:
		return StateStopping
	case phaseNone, phaseStarting:
	}
	if p := t.problems.process; p != nil && p.Reason != ReasonDied {
		return StateFailed
	}
	return StateWaiting
}
