package wellknown

// Local ports, all on LoopbackAddress.
const (
	// DefaultBasePort is the first port that a target can get.
	DefaultBasePort = 20490
	// DefaultPortCount is how many ports from the base on are for targets.
	DefaultPortCount = 1000
	// MinPort and MaxPort bound the range that can be chosen: no privileged port.
	MinPort = 1024
	// MaxPort is the highest port there is.
	MaxPort = 65535
	// NFSPort is never a target's: an inline NFS volume names no port and reaches this one, so
	// a tunnel there would be open to everybody's pods.
	NFSPort = 2049
	// AgentHTTPPort is the node agent's own, so never a target's.
	AgentHTTPPort = 20488
	// MinNodePort and MaxNodePort are Kubernetes' default range of NodePort services.
	MinNodePort = 30000
	// MaxNodePort ends the default range of NodePort services.
	MaxNodePort = 32767
)

// Addresses of the node's own.
const (
	// LoopbackAddress is the NFS server of every volume: the node's end of the tunnel.
	LoopbackAddress = "127.0.0.1"
	// StandbyAddress is where a new agent proves its tunnels while the old one still has the
	// real ports.
	StandbyAddress = "127.0.0.2"
)
