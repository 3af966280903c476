// Package tunnelspec defines the contract between agent and supervisor. The agent writes the
// specification of a tunnel: where it listens, which servers it connects to and what it verifies; package
// stunnelcfg renders it as stunnel's configuration. The supervisor writes the status. Reasons of failed
// probes are here, too.
//
// The values come from a ConfigMap that users can edit. A strict grammar keeps each value from
// adding a line or an option to stunnel's configuration.
package tunnelspec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Tunnel is a local port and the servers behind it.
type Tunnel struct {
	// Name is the id of the target, for an access point followed by "." and the id of that. It is
	// the name of the stunnel service and part of the file name.
	Name    string           `json:"name"`
	Accept  netip.AddrPort   `json:"accept"`  // on a loopback address
	Connect []netip.AddrPort `json:"connect"` // in order of preference, at most MaxConnect
	// CheckHost is the DNS name that the server's certificate must have. It is sent as SNI, too.
	CheckHost string `json:"checkHost"`
	CAFile    string `json:"caFile"` // absolute path of the trusted roots, PEM
	// CASum is the SHA-256 of the file CAFile in hexadecimal, "" if the agent has never read it. It makes
	// a changed file change the specification, so that stunnel reads the file again.
	CASum string `json:"caSum,omitempty"`
	// Cert and Key are absolute paths of the client certificate, PEM; "" for none.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// CertSum is the SHA-256 of the file Cert in hexadecimal. It makes a renewed certificate change
	// the specification, so that stunnel reads the file again.
	CertSum string `json:"certSum,omitempty"`
	// Restart counts the requested restarts. A change restarts stunnel, which ends its connections;
	// every other change is a reload, which keeps them.
	Restart int `json:"restart,omitempty"`
	// Lanes is the most connections of a client that the servers serve as one without telling partitions; 0 if
	// that is not known.
	Lanes int `json:"lanes,omitempty"`
}

// MaxLanes bounds the connections over which one of a client is spread. Amazon EFS serves as many.
const MaxLanes = 5

// MaxConnect bounds the addresses of one tunnel. EFS has one in each zone.
const MaxConnect = 32

// Encode returns the JSON of a specification, equal bytes for equal tunnels, or an error that names
// the first invalid field.
func Encode(t Tunnel) ([]byte, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encoding a tunnel's specification: %w", err)
	}
	return append(text, '\n'), nil
}

// Decode parses the output of Encode. It returns an error for invalid values, and for unknown
// fields: agent and supervisor of a pod have the same version.
func Decode(text []byte) (Tunnel, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var t Tunnel
	if err := decoder.Decode(&t); err != nil {
		return Tunnel{}, fmt.Errorf("decoding a tunnel's specification: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Tunnel{}, errors.New("decoding a tunnel's specification: more than one value")
	}
	if err := t.Check(); err != nil {
		return Tunnel{}, err
	}
	return t, nil
}

// Generation returns the SHA-256 of an encoded specification in hexadecimal, "" for nil. The
// supervisor's status names with it the specification in force.
func Generation(text []byte) string {
	if text == nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// Allowed values. None of these patterns accepts a space, a line break, a bracket, a quote or the
// beginning of a comment.
var (
	tunnelName = regexp.MustCompile(`^[a-z]([-0-9a-z]{0,41}[0-9a-z])?(\.fsap-[0-9a-z]{1,40})?$`)
	dnsLabel   = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$`)
	sha256Sum  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	filePath   = regexp.MustCompile(`^/[-+.,:=@_/0-9A-Za-z]+$`)
)

// maxPathBytes is the kernel's limit without the terminating zero.
const maxPathBytes = 4095

// CheckName returns an error if the name is not valid for a tunnel.
func CheckName(name string) error {
	if !tunnelName.MatchString(name) {
		return fmt.Errorf("name is %.80q: want the id of a target, or that, a dot and the id of an access point", name)
	}
	return nil
}

// Check returns an error that names the first invalid field.
func (t Tunnel) Check() error {
	err := cmp.Or(CheckName(t.Name), checkAccept(t.Accept), checkConnect(t.Connect), checkHostName(t.CheckHost), checkPath("CA file", t.CAFile))
	if err == nil && t.CASum != "" {
		err = checkSum("CA file", t.CASum)
	}
	if err == nil && t.Cert+t.Key+t.CertSum != "" {
		err = cmp.Or(checkPath("client certificate", t.Cert), checkSum("client certificate", t.CertSum), checkPath("client key", t.Key))
	}
	if err == nil && t.Restart < 0 {
		err = fmt.Errorf("restart serial is %d: want 0 or more", t.Restart)
	}
	if err == nil && (t.Lanes < 0 || t.Lanes > MaxLanes) {
		err = fmt.Errorf("lanes are %d: want 0 to %d", t.Lanes, MaxLanes)
	}
	return err
}

// checkAccept allows loopback addresses only: who reaches the port reaches the whole file system. Package
// sockets lists IPv4 sockets only.
func checkAccept(a netip.AddrPort) error {
	if a.Port() == 0 || !a.Addr().IsLoopback() || !a.Addr().Is4() {
		return fmt.Errorf("accept is %.80q: want an IPv4 loopback address and a port", a.String())
	}
	return nil
}

func checkConnect(addresses []netip.AddrPort) error {
	if len(addresses) == 0 || len(addresses) > MaxConnect {
		return fmt.Errorf("connect has %d addresses: want 1 to %d", len(addresses), MaxConnect)
	}
	for i, a := range addresses {
		address := a.Addr().Unmap()
		if a.Port() == 0 || !address.IsValid() || address.IsUnspecified() || address.IsMulticast() || address.Zone() != "" {
			return fmt.Errorf("connect %d is %.80q: want the address and port of one server", i+1, a.String())
		}
	}
	return nil
}

// checkHostName excludes IP addresses, which stunnel's checkHost does not support.
func checkHostName(name string) error {
	_, notAddress := netip.ParseAddr(name)
	valid := len(name) <= 253 && notAddress != nil
	for label := range strings.SplitSeq(name, ".") {
		valid = valid && dnsLabel.MatchString(label)
	}
	if !valid {
		return fmt.Errorf("host name to check is %.80q: want a DNS name", name)
	}
	return nil
}

func checkPath(field, name string) error {
	if len(name) > maxPathBytes || !filePath.MatchString(name) || path.Clean(name) != name {
		return fmt.Errorf("%s is %.80q: want an absolute path of letters, digits and -+.,:=@_ without double dots", field, name)
	}
	return nil
}

func checkSum(file, sum string) error {
	if !sha256Sum.MatchString(sum) {
		return fmt.Errorf("sum of the %s is %.80q: want a SHA-256 in hexadecimal", file, sum)
	}
	return nil
}

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
	Memory    uint64         `json:"memory,omitempty"`
	Lanes     *Lanes         `json:"lanes,omitempty"`   // nil without lanes; read as often as Memory
	Listening bool           `json:"listening"`         // the port of the specification is open
	Accept    netip.AddrPort `json:"accept,omitzero"`   // of the open socket
	Restarts  int            `json:"restarts"`          // starts, less the first and those after an idle stop
	Reloads   int            `json:"reloads"`           // successful reloads
	Remote    netip.AddrPort `json:"remote,omitzero"`   // the last server with a TLS handshake
	RemoteAt  time.Time      `json:"remoteAt,omitzero"` // of that handshake
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

// Reason is the kind of a problem, as in metrics, logs and conditions. docs/reference/reasons.md is generated from the
// comments of its values: after the first sentence they say what to do.
type Reason string

// Problems of the process.
const (
	ReasonPortTaken    Reason = "PortTaken"    // another process or tunnel listens on the tunnel's port. Find it on the node: ss -tnlp
	ReasonBadConfig    Reason = "BadConfig"    // stunnel refuses the configuration file. The log of supervisor; usually its container lacks the CA file
	ReasonStartFailed  Reason = "StartFailed"  // the program could not be started or its file not be written. Image of the DaemonSet, STUNNEL_PATH
	ReasonDied         Reason = "Died"         // stunnel exited unexpectedly. The log of supervisor; memory of the node
	ReasonUnresponsive Reason = "Unresponsive" // a start or reload of stunnel took more than 30 s. Load of the node
	// ReasonExhausted: stunnel closes new connections, because it has no memory or descriptors left; after three in a row
	// it is restarted, at most once a minute. As the alert EFSTunnelMemoryShort.
	ReasonExhausted Reason = "Exhausted"
)

// Problems of connections to the servers.
const (
	ReasonConnectRefused            Reason = "ConnectRefused"            // the mount target refuses the connection. Its state in AWS; is the address still its own?
	ReasonConnectTimeout            Reason = "ConnectTimeout"            // the mount target does not answer. Security group (TCP 2049), network ACL, routes
	ReasonConnectUnreachable        Reason = "ConnectUnreachable"        // the node has no route to the address. Routes, VPC peering
	ReasonCertificateHostMismatch   Reason = "CertificateHostMismatch"   // the certificate is of another host name. Correct dns_name and addresses in the table or the pinned table
	ReasonCertificateExpired        Reason = "CertificateExpired"        // the certificate has expired, or is not valid yet. Clock of the node
	ReasonCertificateUntrusted      Reason = "CertificateUntrusted"      // none of the trusted roots has signed the certificate. EFS_CA_FILE; a proxy that intercepts TLS
	ReasonTLSVersion                Reason = "TLSVersion"                // the server is too old for TLS 1.2. The server
	ReasonNotTLS                    Reason = "NotTLS"                    // the server speaks another protocol. Is the address that of a mount target?
	ReasonClientCertificateRejected Reason = "ClientCertificateRejected" // the server demands a client certificate, or another one. IAM identity of the target; clock of the node
	ReasonHandshakeTimeout          Reason = "HandshakeTimeout"          // the server accepts the connection and does not answer. The mount target; the agent fails over to another one
	ReasonHandshakeFailed           Reason = "HandshakeFailed"           // the handshake failed for any other reason. The log of supervisor
	ReasonConnectionLost            Reason = "ConnectionLost"            // a connection broke after the handshake. Nothing, if it stays rare
)

// Reasons for failed probes, as in metrics, events and reports. After the first sentence the comments say what to do about
// a tunnel; remedies are for servers.
const (
	ProbeTimeout     = "Timeout"     // no reply in time. See the other reasons of the same tunnel
	ProbeRefused     = "Refused"     // no process listens. The log of supervisor
	ProbeUnreachable = "Unreachable" // no route to the address. Loopback of the node
	ProbeClosed      = "Closed"      // the connection was closed or reset before the reply. See the other reasons of the same tunnel
	ProbeCertificate = "Certificate" // the server's certificate cannot be verified. As CertificateUntrusted
	ProbeHandshake   = "Handshake"   // the server has no TLS, or no common version or cipher. As NotTLS and TLSVersion
	ProbeDenied      = "Denied"      // the NFS server denied the call. The file system's policy, the access point, and the tunnel's identity
	ProbeProtocol    = "Protocol"    // the reply is not an NFSv4 server's. The address, or the process on the port
	ProbeHijacked    = "Hijacked"    // the node redirects the tunnel's port, and another process or pod gets what clients send. The event PortHijacked
	ProbeOther       = "Other"       // anything else. The log of agent
)

// remedies are what administrators do about failed probes.
var remedies = map[string]string{
	ProbeTimeout:     "check the security groups (TCP 2049) of the mount target and of the node, network ACLs, routes; of a server of your own, the pod and NetworkPolicies",
	ProbeRefused:     "check the address, the mount target's state in AWS, or the pod of a server of your own: nothing listens there",
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
