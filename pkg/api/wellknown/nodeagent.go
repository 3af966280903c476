package wellknown

import "time"

// Defaults of the node agent's settings.
const (
	// DefaultStunnelConf is the prefix of the tunnels' files: stunnel's configuration adds "." and
	// the id of the file system, and for an access point "." and the id of the access point.
	DefaultStunnelConf = "/tmp/stunnel.conf"
	// DefaultAgentHTTPAddress can be reached from its own node only.
	DefaultAgentHTTPAddress  = LoopbackAddress + ":20488"
	DefaultProbeInterval     = 10 * time.Second // between two probes of a tunnel that is not in use
	DefaultTunnelIdle        = 10 * time.Minute // without a connection, until stunnel is stopped
	DefaultAgentProbeTimeout = 4 * time.Second  // the timeout of kubelet's probes, below the 5 s of the manifests
	// FirstHealthWait is how long a starting agent waits for healthy tunnels until it reports ready
	// without them.
	FirstHealthWait = 60 * time.Second
)

// Candidates for stunnel's program, in this order.
const (
	StunnelPath       = "/usr/local/bin/stunnel" // in our image
	StunnelSystemPath = "/usr/bin/stunnel"       // in distributions
	StunnelCommand    = "stunnel4"               // Debian's name, looked up in PATH
)
