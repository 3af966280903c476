// Package nodereport is the contract between the plugin's preflight and the short-lived pod in which the node agent's
// program checks a node: a request as its argument, and a report as its termination message, both in JSON.
package nodereport

// Command is the command of the node agent's program that runs the check; a Request in JSON follows.
const Command = "preflight"

// Request says what to read.
type Request struct {
	Host    string   `json:"host"` // where the node's root directory is
	Proc    string   `json:"proc"` // the process file system, of the host's network
	Servers []Server `json:"servers,omitempty"`
	CA      string   `json:"ca,omitempty"`     // PEM of the roots that servers' certificates must come from; "" for the image's
	Region  string   `json:"region,omitempty"` // of the EFS API, which is called with the node's identity; "" for no call
}

// Server is a mount target, as a node connects to it.
type Server struct {
	FileSystem string `json:"fileSystem"`
	Host       string `json:"host"`              // the name in the server's certificate
	Address    string `json:"address,omitempty"` // with or without a port; "" for what the name resolves to on the node
}

// Report is what was read.
type Report struct {
	MountNFS  []string `json:"mountNFS"` // where mount.nfs is on the node
	NFS4      string   `json:"nfs4"`     // how the kernel has NFSv4: "loaded", "module", "built in", "" for not
	Kernel    string   `json:"kernel"`
	HostName  string   `json:"hostName"`  // by which NFS servers know the node, with nfs4_unique_id before it if that is set
	PortRange string   `json:"portRange"` // net.ipv4.ip_local_port_range
	Reserved  string   `json:"reserved"`  // net.ipv4.ip_local_reserved_ports
	Enforcing bool     `json:"enforcing"` // SELinux
	// Booleans are those of SELinux about NFS that the policy has.
	Booleans map[string]bool `json:"booleans,omitempty"`
	Answered int             `json:"answered"` // servers that answer
	Failed   int             `json:"failed"`   // servers that do not
	Failures []Failure       `json:"failures,omitempty"`
	AWS      *AWS            `json:"aws,omitempty"` // nil if it was not asked
}

// Failure is a mount target that does not answer.
type Failure struct {
	FileSystem string `json:"fileSystem"`
	Address    string `json:"address,omitempty"`
	Reason     string `json:"reason"` // as of failed probes, or ReasonName
	Error      string `json:"error"`
}

// ReasonName is for a name that the node cannot resolve.
const ReasonName = "Name"

// AWS is what the EFS API answers to the node's own identity.
type AWS struct {
	FileSystems int    `json:"fileSystems"`
	Error       string `json:"error,omitempty"`
}
