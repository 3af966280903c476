package supervise

import "regexp"

// Reason is the kind of a problem, used in metrics and events.
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

// Reasons returns all reasons. docs/reference/reasons.md explains each.
func Reasons() []Reason {
	reasons := []Reason{ReasonPortTaken, ReasonBadConfig, ReasonStartFailed, ReasonDied, ReasonUnresponsive}
	for _, p := range patterns {
		reasons = append(reasons, p.reason)
	}
	return reasons
}

// patterns match the log lines of stunnel 5.50 to 5.76 with OpenSSL 1.1 and 3. The first match wins.
var patterns = []struct {
	reason Reason
	lines  *regexp.Regexp
}{
	{ReasonExhausted, regexp.MustCompile(`^Connection rejected: `)},
	{ReasonConnectRefused, regexp.MustCompile(`^s_connect: .*(Connection refused|Connection reset)`)},
	{ReasonConnectTimeout, regexp.MustCompile(`^s_connect: .*(TIMEOUTconnect exceeded|Connection timed out)`)},
	// An argument is invalid for a connection from a loopback address to another network.
	{ReasonConnectUnreachable, regexp.MustCompile(`^s_connect: .*(unreachable|No route to host|Invalid argument)`)},
	{ReasonCertificateHostMismatch, regexp.MustCompile(`^CERT: (Subject checks failed|No matching host name found)`)},
	{ReasonCertificateExpired, regexp.MustCompile(`^CERT: Pre-verification error: .*(expired|not yet valid)`)},
	{ReasonCertificateUntrusted, regexp.MustCompile(`^(CERT: Pre-verification error: |SSL_connect.*certificate verify failed)`)},
	{ReasonTLSVersion, regexp.MustCompile(`^SSL_connect.*(alert protocol version|unsupported protocol)`)},
	{ReasonNotTLS, regexp.MustCompile(`^SSL_connect.*(wrong version number|packet length too long|http request)`)},
	// TLS 1.3 servers verify the client's certificate after the client has finished the handshake.
	{ReasonClientCertificateRejected, regexp.MustCompile(`^SSL_(connect|read|write).*alert (certificate|bad certificate|unknown ca|access denied)`)},
	{ReasonHandshakeTimeout, regexp.MustCompile(`^ssl_start: .*TIMEOUTbusy exceeded`)},
	{ReasonHandshakeFailed, regexp.MustCompile(`^SSL_connect`)},
	{ReasonConnectionLost, regexp.MustCompile(`^(TLS fd: |SSL_read|SSL_write)`)},
}

// reasonOf returns "" for a line that reports no problem of a connection.
func reasonOf(text string) Reason {
	for _, p := range patterns {
		if p.lines.MatchString(text) {
			return p.reason
		}
	}
	return ""
}
