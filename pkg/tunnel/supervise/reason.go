package supervise

import "strings"

// Reason is the kind of a problem, used in metrics and events.
type Reason string

// Problems of the process.
const (
	ReasonPortTaken    Reason = "PortTaken"    // another process listens on the tunnel's port
	ReasonBadConfig    Reason = "BadConfig"    // stunnel refuses the configuration file
	ReasonStartFailed  Reason = "StartFailed"  // the program could not be started or its file not be written
	ReasonDied         Reason = "Died"         // stunnel exited unexpectedly
	ReasonUnresponsive Reason = "Unresponsive" // a start or reload timed out
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

// Reasons returns all reasons, for metrics that start at zero.
func Reasons() []Reason {
	return []Reason{
		ReasonPortTaken, ReasonBadConfig, ReasonStartFailed, ReasonDied, ReasonUnresponsive,
		ReasonConnectRefused, ReasonConnectTimeout, ReasonConnectUnreachable,
		ReasonCertificateHostMismatch, ReasonCertificateExpired, ReasonCertificateUntrusted,
		ReasonTLSVersion, ReasonNotTLS, ReasonClientCertificateRejected,
		ReasonHandshakeTimeout, ReasonHandshakeFailed, ReasonConnectionLost,
	}
}

// pattern is a part of a log line and the reason that it stands for.
type pattern struct {
	text   string
	reason Reason
}

// patternsByPrefix maps the prefix of a log line to patterns of the rest, of which the first match
// wins. A last empty pattern matches every other line. The texts are those of stunnel 5.50 to 5.76
// with OpenSSL 1.1 and 3.
func patternsByPrefix() map[string][]pattern {
	handshake := []pattern{
		{"alert protocol version", ReasonTLSVersion},
		{"unsupported protocol", ReasonTLSVersion},
		{"wrong version number", ReasonNotTLS},
		{"packet length too long", ReasonNotTLS},
		{"http request", ReasonNotTLS},
		{"certificate verify failed", ReasonCertificateUntrusted},
		{"alert certificate required", ReasonClientCertificateRejected},
		{"alert bad certificate", ReasonClientCertificateRejected},
		{"alert unknown ca", ReasonClientCertificateRejected},
		{"alert certificate", ReasonClientCertificateRejected}, // expired, revoked, unknown
		{"alert access denied", ReasonClientCertificateRejected},
		{"", ReasonHandshakeFailed},
	}
	transfer := []pattern{
		// TLS 1.3 servers verify the client's certificate after the client has finished.
		{"alert certificate", ReasonClientCertificateRejected},
		{"alert bad certificate", ReasonClientCertificateRejected},
		{"alert unknown ca", ReasonClientCertificateRejected},
		{"alert access denied", ReasonClientCertificateRejected},
		{"", ReasonConnectionLost},
	}
	return map[string][]pattern{
		"s_connect: ": {
			{"Connection refused", ReasonConnectRefused},
			{"TIMEOUTconnect exceeded", ReasonConnectTimeout},
			{"Connection timed out", ReasonConnectTimeout},
			{"unreachable", ReasonConnectUnreachable},
			{"No route to host", ReasonConnectUnreachable},
			{"Invalid argument", ReasonConnectUnreachable}, // from a loopback address to another network
			{"Connection reset", ReasonConnectRefused},
		},
		"CERT: Subject checks failed":       {{"", ReasonCertificateHostMismatch}},
		"CERT: No matching host name found": {{"", ReasonCertificateHostMismatch}},
		"CERT: Pre-verification error: ": {
			{"expired", ReasonCertificateExpired},
			{"not yet valid", ReasonCertificateExpired},
			{"", ReasonCertificateUntrusted},
		},
		"ssl_start: ": {{"TIMEOUTbusy exceeded", ReasonHandshakeTimeout}},
		"TLS fd: ":    {{"", ReasonConnectionLost}},
		"SSL_connect": handshake,
		"SSL_read":    transfer,
		"SSL_write":   transfer,
	}
}

// classifier finds the reasons of log lines.
type classifier struct{ patterns map[string][]pattern }

func newClassifier() classifier { return classifier{patternsByPrefix()} }

// reason returns "" for a line that reports no problem.
func (c classifier) reason(text string) Reason {
	for prefix, patterns := range c.patterns {
		if !strings.HasPrefix(text, prefix) {
			continue
		}
		for _, p := range patterns {
			if strings.Contains(text, p.text) {
				return p.reason
			}
		}
	}
	return ""
}
