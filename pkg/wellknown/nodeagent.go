package wellknown

import "time"

// Defaults of the node agent's settings.
const (
	// DefaultStunnelConf is the prefix of the tunnels' files: stunnel's configuration adds "." and
	// the id of the file system, and for an access point "." and that one's id.
	DefaultStunnelConf = "/tmp/stunnel.conf"
	// DefaultAgentHTTPAddress serves health and metrics to its own node only.
	DefaultAgentHTTPAddress = LoopbackAddress + ":20488"
	// DefaultProbeInterval is the time between two probes of a tunnel that is not in use.
	DefaultProbeInterval = 10 * time.Second
	// DefaultTunnelIdle is after how long without a connection a tunnel's stunnel ends.
	DefaultTunnelIdle = 10 * time.Minute
	// DefaultAgentProbeTimeout is how long kubelet's probes wait for the agent, of the 5 s that
	// the manifests give them.
	DefaultAgentProbeTimeout = 4 * time.Second
	// FirstHealthWait is how long a starting agent waits for its tunnels to be healthy before
	// it reports ready all the same.
	FirstHealthWait = 60 * time.Second
)

// Candidates for stunnel's program, in this order.
const (
	// StunnelPath is where our image has it.
	StunnelPath = "/usr/local/bin/stunnel"
	// StunnelSystemPath is where distributions have it.
	StunnelSystemPath = "/usr/bin/stunnel"
	// StunnelCommand is Debian's name for it, looked up in PATH.
	StunnelCommand = "stunnel4"
)
