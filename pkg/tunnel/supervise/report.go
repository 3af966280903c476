package supervise

import (
	"maps"
	"os"
	"reflect"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
)

// reportDelay is the shortest time between two writes of the status file.
const reportDelay = 100 * time.Millisecond

// statusWriter holds what decides when the status file is written.
type statusWriter struct {
	dir       confdir.Dir
	startedAt time.Time
	last      Status    // that was written
	at        time.Time // of the last attempt
}

func (w *statusWriter) remove() error { return w.dir.RemoveStatus() }

// report writes the status file if the status has changed or UpdatedAt is due. It returns when to
// call it again.
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
	// Read after the comparison: a change of memory alone is no reason to write the file.
	s.checkMemory(now)
	fresh.Tunnels = s.tunnelStatus()
	w.at, fresh.UpdatedAt = now, now
	if err := writeStatus(w.dir, fresh); err != nil {
		s.options.Log.Warn("writing the status file failed", "err", err)
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
		State: t.state(), Listening: t.desired.isSet() && t.listening(),
		Restarts: t.restarts, Reloads: t.reloads,
		Remote: addressText(p.remote), RemoteAt: p.remoteAt, Servers: p.servers(),
		Process: p.process, Connection: p.connection, Problems: maps.Clone(p.counts),
	}
	if t.socket != nil {
		status.Accept = t.socket.address.String()
	}
	if t.proc != nil {
		status.PID, status.StartedAt = t.proc.Pid, t.startedAt
		status.Memory = t.memory
	}
	switch {
	case status.State == StateIdle:
		status.Generation = t.desired.generation
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
	case t.phase == phaseNone && !t.needed && t.desired.isSet() && t.listening():
		return StateIdle
	case p != nil && p.Reason != ReasonDied:
		return StateFailed
	}
	return StateWaiting
}
