package tunnelspec

import (
	"net/netip"
	"slices"
	"time"
)

// StatusInterval bounds the time between two writes of the supervisor's status.
const StatusInterval = 10 * time.Second

// Status is the content of the supervisor's status file, which the agent reads. The supervisor removes
// the file when it shuts down; after a kill, the file stays and UpdatedAt grows old.
type Status struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	UpdatedAt time.Time `json:"updatedAt"` // at most StatusInterval ago
	Stunnel   string    `json:"stunnel"`   // version of the program that runs
	// MemoryLimit bounds the memory of each stunnel process, in bytes.
	MemoryLimit uint64                  `json:"memoryLimit,omitempty"`
	Tunnels     map[string]TunnelStatus `json:"tunnels"` // by name
}

// State is the state of a tunnel's stunnel process.
type State string

// States.
const (
	StateRunning  State = "running"  // stunnel serves with the configuration of TunnelStatus.Generation
	StateIdle     State = "resting"  // the port is open, and stunnel starts when a client connects
	StateWaiting  State = "waiting"  // stunnel starts, or restarts after a delay
	StateStopping State = "stopping" // stunnel was asked to exit
	StateFailed   State = "failed"   // stunnel does not run and needs intervention; the supervisor retries
)

// TunnelStatus is the supervisor's status of one tunnel.
type TunnelStatus struct {
	State     State     `json:"state"`
	PID       int       `json:"pid,omitempty"`      // 0 when no process runs
	StartedAt time.Time `json:"startedAt,omitzero"` // of the process
	// Memory is the memory of the running process that counts against Status.MemoryLimit, in bytes;
	// 0 until it is read. It is read at most once in a StatusInterval.
	Memory    uint64    `json:"memory,omitempty"`
	Lanes     *Lanes    `json:"lanes,omitempty"`   // nil without lanes; read as often as Memory
	Listening bool      `json:"listening"`         // the port of the specification is open
	Accept    string    `json:"accept,omitempty"`  // address and port of the open socket
	Restarts  int       `json:"restarts"`          // starts, less the first and those after an idle stop
	Reloads   int       `json:"reloads"`           // successful reloads
	Remote    string    `json:"remote,omitempty"`  // address and port of the last server with a TLS handshake
	RemoteAt  time.Time `json:"remoteAt,omitzero"` // of that handshake
	// Servers are the servers of open connections. Older connections may go to another server than Remote.
	Servers []netip.AddrPort `json:"servers,omitempty"`
	// Generation is the Generation of the configuration in force: that of the process or, in
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

// Reason is the kind of a problem, as in metrics, logs and conditions.
type Reason string

// Problems of the process.
const (
	ReasonPortTaken    Reason = "PortTaken"    // another process or tunnel listens on the tunnel's port
	ReasonBadConfig    Reason = "BadConfig"    // stunnel refuses the configuration file
	ReasonStartFailed  Reason = "StartFailed"  // the program could not be started or its file not be written
	ReasonDied         Reason = "Died"         // stunnel exited unexpectedly
	ReasonUnresponsive Reason = "Unresponsive" // a start or reload timed out
	ReasonExhausted    Reason = "Exhausted"    // stunnel closes new connections: it has no memory or descriptors left
)

// Problems of connections to the servers.
const (
	ReasonConnectRefused            Reason = "ConnectRefused"
	ReasonConnectTimeout            Reason = "ConnectTimeout"
	ReasonConnectUnreachable        Reason = "ConnectUnreachable"
	ReasonCertificateHostMismatch   Reason = "CertificateHostMismatch" // of another host name
	ReasonCertificateExpired        Reason = "CertificateExpired"      // or not valid yet
	ReasonCertificateUntrusted      Reason = "CertificateUntrusted"    // by none of the trusted roots
	ReasonTLSVersion                Reason = "TLSVersion"              // the server is too old for TLS 1.2
	ReasonNotTLS                    Reason = "NotTLS"                  // the server speaks another protocol
	ReasonClientCertificateRejected Reason = "ClientCertificateRejected"
	ReasonHandshakeTimeout          Reason = "HandshakeTimeout" // the server accepts the connection and does not answer
	ReasonHandshakeFailed           Reason = "HandshakeFailed"  // for any other reason
	ReasonConnectionLost            Reason = "ConnectionLost"   // after the handshake
)

// Reasons for failed probes, as in metrics, events and reports.
const (
	ProbeTimeout     = "Timeout"     // no reply in time
	ProbeRefused     = "Refused"     // no process listens
	ProbeUnreachable = "Unreachable" // no route to the address
	ProbeClosed      = "Closed"      // the connection was closed or reset before the reply
	ProbeCertificate = "Certificate" // the server's certificate cannot be verified
	ProbeHandshake   = "Handshake"   // the server has no TLS, or no common version or cipher
	ProbeDenied      = "Denied"      // the NFS server denied the call
	ProbeProtocol    = "Protocol"    // the reply is not an NFSv4 server's
	ProbeHijacked    = "Hijacked"    // the node redirects the tunnel's port, and another process or pod gets what clients send
	ProbeOther       = "Other"
)

// remedies are what administrators do about failed probes.
var remedies = map[string]string{
	ProbeTimeout:     "check the security groups (TCP 2049) of the mount target and of the node, network ACLs, routes",
	ProbeRefused:     "check the address, and the mount target's state in AWS: nothing listens there",
	ProbeUnreachable: "check the routes of the node's subnet",
	ProbeCertificate: "remove a proxy in between; if the server has a certificate of its own, name its authority (EFS_CA_FILE, ca_certificates of a pinned target, --ca-file of preflight)",
	ProbeHandshake:   "check the address and what is in between: the server has no TLS, or something breaks it",
	ProbeClosed:      "check what is between node and mount target: something closes the connection, or TLS is not served",
	ProbeDenied:      "check the policy of the file system",
	ProbeProtocol:    "check the address: the server is not one of NFSv4",
	ProbeHijacked:    "delete the pod with this hostPort, or the Service with this nodePort",
	ProbeOther:       "do what the message says",
}

// ProbeRemedy says what to do about a reason; "" for one that is unknown.
func ProbeRemedy(reason string) string { return remedies[reason] }

// Lanes is what the front of a tunnel does, if it has one.
type Lanes struct {
	Open    int64 `json:"open"`    // connections to stunnel
	Waiting int64 `json:"waiting"` // requests without an answer
	// Counts are the requests that were answered since the port was opened: each item has those that took
	// no longer than its bound, and longer than the one before. The last item has no bound.
	Counts  []uint64 `json:"counts"`
	Seconds float64  `json:"seconds"` // that all of these requests took
}

// The bounds of Lanes.Counts: the first, and how many there are. Each is twice the one before.
const (
	FirstLatency   = 250 * time.Microsecond
	LatencyBuckets = 15 // to 4 s
)
