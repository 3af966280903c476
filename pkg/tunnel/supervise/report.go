package supervise

import (
	"maps"
	"os"
	"reflect"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
)

// reportDelay is the least time between two writings of the status.
const reportDelay = 100 * time.Millisecond

// statusWriter keeps the status file.
type statusWriter struct {
	dir       confdir.Dir
	startedAt time.Time
	last      Status    // as written
	at        time.Time // tried
}

func (w *statusWriter) remove() error { return w.dir.RemoveStatus() }

// report writes the status if it is another, or old, and says when to ask again.
func (s *supervisor) report(now time.Time) time.Time {
	w := &s.status
	if now.Before(w.at.Add(reportDelay)) {
		return w.at.Add(reportDelay)
	}
	fresh := Status{
		PID: os.Getpid(), StartedAt: w.startedAt, UpdatedAt: w.last.UpdatedAt,
		Stunnel: s.features, MemoryLimit: s.options.MemoryLimit, Tunnels: s.tunnelStatus(),
	}
	if reflect.DeepEqual(fresh, w.last) && now.Before(w.last.UpdatedAt.Add(StatusInterval-time.Second)) {
		return w.last.UpdatedAt.Add(StatusInterval - time.Second)
	}
	// Read only now, so that no change of it is what the file is written for.
	s.readMemory(now)
	fresh.Tunnels = s.tunnelStatus()
	w.at, fresh.UpdatedAt = now, now
	if err := writeStatus(w.dir, fresh); err != nil {
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
		State: t.state(), Listening: t.want.exists() && t.listening(),
		Restarts: t.restarts, Reloads: t.reloads,
		Remote: addressText(p.remote), RemoteAt: p.remoteAt, Servers: p.servers(),
		Process: p.process, Connection: p.connection, Problems: maps.Clone(p.counts),
	}
	if t.socket != nil {
		status.Accept = t.socket.address.String()
	}
	if t.proc != nil {
		status.PID, status.StartedAt = t.proc.PID(), t.startedAt
		status.Memory = t.memory
	}
	switch {
	case status.State == StateResting:
		status.Generation = t.want.generation
	case t.proc != nil && t.phase != phaseStarting:
		status.Generation = t.current.generation
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
	switch p := t.problems.process; {
	case t.phase == phaseNone && !t.needed && t.want.exists() && t.listening():
		return StateResting
	case p != nil && p.Reason != ReasonDied:
		return StateFailed
	}
	return StateWaiting
}
