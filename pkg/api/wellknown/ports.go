package wellknown

// Local ports, all on LoopbackAddress.
const (
	DefaultBasePort  = 20490
	DefaultPortCount = 1000
	MinPort          = 1024 // no privileged port
	MaxPort          = 65535
	// NFSPort is never a target's: an inline NFS volume names no port and uses this one, so that a
	// tunnel there would be open to all pods.
	NFSPort       = 2049
	AgentHTTPPort = 20488 // of the node agent, so never a target's
	MinNodePort   = 30000 // of Kubernetes' default range of NodePort services
	MaxNodePort   = 32767
)

// Loopback addresses of a node.
const (
	LoopbackAddress = "127.0.0.1" // the NFS server of every volume: the node's end of the tunnel
	StandbyAddress  = "127.0.0.2" // where a new agent probes its tunnels while the old one still has the ports
)
