package supervise

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"time"
)

// reportDelay is the shortest time between two writes of the status file.
const reportDelay = 100 * time.Millisecond

// report writes the status file if the status has changed or UpdatedAt is due. It returns when to
// call it again.
func (s *supervisor) report(now time.Time) time.Time {
	if next := s.statusAt.Add(reportDelay); now.Before(next) {
		return next
	}
	fresh := Status{
		PID: os.Getpid(), StartedAt: s.startedAt, UpdatedAt: s.status.UpdatedAt,
		Stunnel: s.features, MemoryLimit: s.options.MemoryLimit, Tunnels: s.tunnelStatus(),
	}
	due := s.status.UpdatedAt.Add(StatusInterval - time.Second)
	if now.Before(due) && reflect.DeepEqual(fresh, s.status) {
		return due
	}
	// Read after the comparison: a change of memory alone is no reason to write the file.
	s.checkMemory(now)
	fresh.Tunnels = s.tunnelStatus()
	s.statusAt, fresh.UpdatedAt = now, now
	text, err := json.Marshal(fresh)
	if err == nil {
		err = s.dir.WriteStatus(text)
	}
	if err != nil {
		s.options.Log.Warn("writing the status file failed", "err", err)
		return now.Add(time.Second)
	}
	s.status = fresh
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
		RemoteAt: p.remoteAt, Servers: p.servers(),
		Process: p.process, Connection: p.connection, Problems: maps.Clone(p.counts),
	}
	if p.remote.IsValid() {
		status.Remote = p.remote.String()
	}
	if t.socket != nil {
		status.Accept = t.socket.address.String()
	}
	if t.proc != nil {
		status.PID, status.StartedAt, status.Memory = t.proc.Pid, t.startedAt, t.memory
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
