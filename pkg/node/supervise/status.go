package supervise

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

// Status is the content of the status file. The supervisor removes the file when it shuts down;
// after a kill, the file stays and UpdatedAt grows old.
type Status struct {
	PID       int                 `json:"pid"`
	StartedAt time.Time           `json:"startedAt"`
	UpdatedAt time.Time           `json:"updatedAt"` // at most StatusInterval ago
	Stunnel   stunnelcfg.Features `json:"stunnel"`   // of the program that runs
	// MemoryLimit bounds the memory of each stunnel process, in bytes.
	MemoryLimit uint64            `json:"memoryLimit,omitempty"`
	Tunnels     map[string]Tunnel `json:"tunnels"` // by name
}

// Times of the status file.
const (
	StatusInterval = 10 * time.Second       // the longest time between two writes of the status file
	reportDelay    = 100 * time.Millisecond // the shortest one
)

// State is the state of a tunnel's stunnel process.
type State string

// States.
const (
	StateRunning  State = "running"  // stunnel serves with the configuration of Tunnel.Generation
	StateIdle     State = "resting"  // the port is open, and stunnel starts when a client connects
	StateWaiting  State = "waiting"  // stunnel starts, or restarts after a delay
	StateStopping State = "stopping" // stunnel was asked to exit
	StateFailed   State = "failed"   // stunnel does not run and needs intervention; the supervisor retries
)

// Tunnel is the status of one tunnel.
type Tunnel struct {
	State     State     `json:"state"`
	PID       int       `json:"pid,omitempty"`      // 0 when no process runs
	StartedAt time.Time `json:"startedAt,omitzero"` // of the process
	// Memory is the memory of the running process that counts against Status.MemoryLimit, in bytes;
	// 0 until it is read. It is read at most once in a StatusInterval.
	Memory    uint64    `json:"memory,omitempty"`
	Listening bool      `json:"listening"`         // the port of the specification is open
	Accept    string    `json:"accept,omitempty"`  // address and port of the open socket
	Restarts  int       `json:"restarts"`          // starts, less the first and those after an idle stop
	Reloads   int       `json:"reloads"`           // successful reloads
	Remote    string    `json:"remote,omitempty"`  // address and port of the last server with a TLS handshake
	RemoteAt  time.Time `json:"remoteAt,omitzero"` // of that handshake
	// Servers are the servers of open connections. Older connections may go to another server than Remote.
	Servers []netip.AddrPort `json:"servers,omitempty"`
	// Generation is spec.Generation of the configuration in force: that of the process or, in
	// StateIdle, that of its next start. It is "" if there is none.
	Generation string `json:"generation,omitempty"`
	// Process is the problem that keeps stunnel from running, listening or using the present
	// specification, nil if there is none.
	Process *Problem `json:"process,omitempty"`
	// Connection is the last problem with a server, nil after a later successful handshake.
	Connection *Problem       `json:"connection,omitempty"`
	Problems   map[Reason]int `json:"problems,omitempty"` // counts problems since the start of the supervisor
}

// Problem is the last problem of a process or of a connection.
type Problem struct {
	Reason  Reason    `json:"reason"`
	Message string    `json:"words"` // usually a log line of stunnel
	At      time.Time `json:"at"`
}

// Is reports whether there is a problem with one of the reasons.
func (p *Problem) Is(reasons ...Reason) bool { return p != nil && slices.Contains(reasons, p.Reason) }

// ReadStatus reads the status file of a directory. The error is fs.ErrNotExist while no supervisor runs.
func ReadStatus(dir confdir.Dir) (Status, error) {
	var status Status
	text, err := dir.Status().Read()
	switch {
	case err == nil && text == nil:
		err = fs.ErrNotExist
	case err == nil:
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		return Status{}, fmt.Errorf("reading the supervisor's status: %w", err)
	}
	return status, nil
}

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
		err = s.dir.Status().Write(text)
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
	switch p := t.problems.process; {
	case t.phase == phaseRunning, t.phase == phaseReloading:
		return StateRunning
	case t.phase == phaseStopping:
		return StateStopping
	case t.phase == phaseNone && !t.needed && t.desired.isSet() && t.listening():
		return StateIdle
	case p != nil && p.Reason != ReasonDied:
		return StateFailed
	}
	return StateWaiting
}
