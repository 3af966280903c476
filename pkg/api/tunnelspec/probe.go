package tunnelspec

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
	ProbeCertificate: "remove a proxy in between; if the server has a certificate of its own, name its authority (EFS_CA_FILE, --ca-file of preflight)",
	ProbeHandshake:   "check the address and what is in between: the server has no TLS, or something breaks it",
	ProbeClosed:      "check what is between node and mount target: something closes the connection, or TLS is not served",
	ProbeDenied:      "check the policy of the file system",
	ProbeProtocol:    "check the address: the server is not one of NFSv4",
	ProbeHijacked:    "delete the pod with this hostPort, or the Service with this nodePort",
	ProbeOther:       "do what the message says",
}

// ProbeRemedy says what to do about a reason; "" for one that is unknown.
func ProbeRemedy(reason string) string { return remedies[reason] }
