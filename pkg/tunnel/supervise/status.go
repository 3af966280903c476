package supervise

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
	"gnuthought.com/efs-stunnel/pkg/tunnel/confdir"
)

// Status is what a supervisor says of itself and its tunnels. It is kept in a file, which is
// there as long as a supervisor runs that was not killed; a killed one's UpdatedAt stands still.
type Status struct {
	PID       int                 `json:"pid"`
	StartedAt time.Time           `json:"startedAt"`
	UpdatedAt time.Time           `json:"updatedAt"` // at most StatusInterval ago
	Stunnel   stunnelcfg.Features `json:"stunnel"`   // of the program it runs
	// MemoryLimit is how much memory each process may have, in bytes.
	MemoryLimit uint64            `json:"memoryLimit,omitempty"`
	Tunnels     map[string]Tunnel `json:"tunnels"` // by name
}

// StatusInterval is the longest time between two writings of the status file.
const StatusInterval = 10 * time.Second

// State is what becomes of a tunnel's process.
type State string

const (
	// StateRunning says that it runs, with the configuration of Tunnel.Generation in force.
	StateRunning State = "running"
	// StateResting says that the port is open, and a process starts when somebody connects.
	StateResting State = "resting"
	// StateWaiting says that it is starting, or will be after a delay, because it died.
	StateWaiting State = "waiting"
	// StateStopping says that it was told to end.
	StateStopping State = "stopping"
	// StateFailed says that it does not run, and somebody has to do something before it can. It is
	// tried all the same.
	StateFailed State = "failed"
)

// Tunnel is the status of one.
type Tunnel struct {
	State     State     `json:"state"`
	PID       int       `json:"pid,omitempty"`      // 0 when no process runs
	StartedAt time.Time `json:"startedAt,omitzero"` // of the process
	// Memory is how much of Status.MemoryLimit the running process has, in bytes. It is read at
	// most once in a StatusInterval; 0 while it has not been.
	Memory    uint64    `json:"memory,omitempty"`
	Listening bool      `json:"listening"`         // the port is open where the agent asked for it
	Accept    string    `json:"accept,omitempty"`  // address and port that are open
	Restarts  int       `json:"restarts"`          // processes started after one that ended while it was needed
	Reloads   int       `json:"reloads"`           // configurations taken while running
	Remote    string    `json:"remote,omitempty"`  // address and port of the server that was reached last
	RemoteAt  time.Time `json:"remoteAt,omitzero"` // when
	// Servers are those that connections are open to: old ones may lead to another one than
	// Remote.
	Servers []netip.AddrPort `json:"servers,omitempty"`
	// Generation is spec.Generation of what is in force, "" for nothing: of what the process has
	// taken or, while none is needed, of what one will start with.
	Generation string `json:"generation,omitempty"`
	// Process is what keeps the process from running, listening or taking the file as it is
	// now; nil when nothing does.
	Process *Problem `json:"process,omitempty"`
	// Connection is the latest problem with a server; nil once a connection was established
	// after it.
	Connection *Problem `json:"connection,omitempty"`
	// Problems counts problems since the supervisor started.
	Problems map[Reason]int `json:"problems,omitempty"`
}

// Problem is something that went wrong.
type Problem struct {
	Reason Reason    `json:"reason"`
	Words  string    `json:"words"` // stunnel's own
	At     time.Time `json:"at"`
}

// ReadStatus reads what the supervisor of a folder said last. The error is fs.ErrNotExist while
// none runs.
func ReadStatus(dir confdir.Dir) (Status, error) {
	text, err := dir.Status()
	if err != nil {
		return Status{}, fmt.Errorf("reading the supervisor's status: %w", err)
	}
	var status Status
	if err := json.Unmarshal(text, &status); err != nil {
		return Status{}, fmt.Errorf("reading the supervisor's status: %w", err)
	}
	return status, nil
}

func writeStatus(dir confdir.Dir, status Status) error {
	text, err := json.Marshal(status)
	if err == nil {
		err = dir.WriteStatus(text)
	}
	if err != nil {
		return fmt.Errorf("writing the supervisor's status: %w", err)
	}
	return nil
}

func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
