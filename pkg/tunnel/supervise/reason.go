package supervise

import "strings"

// Reason is the kind of a problem, for metrics and events: one of the constants.
type Reason string

// Problems of the process.
const (
	ReasonPortTaken    Reason = "PortTaken"    // something else listens on the tunnel's port
	ReasonBadConfig    Reason = "BadConfig"    // stunnel refuses the configuration file
	ReasonStartFailed  Reason = "StartFailed"  // the program or its file could not be used
	ReasonDied         Reason = "Died"         // it ended, and nobody had asked it to
	ReasonUnresponsive Reason = "Unresponsive" // it took neither start nor reload in time
)

// Problems of connections to the servers.
const (
	ReasonConnectRefused            Reason = "ConnectRefused"
	ReasonConnectTimeout            Reason = "ConnectTimeout"
	ReasonConnectUnreachable        Reason = "ConnectUnreachable"
	ReasonCertificateHostMismatch   Reason = "CertificateHostMismatch" // it is another server's
	ReasonCertificateExpired        Reason = "CertificateExpired"      // or not valid yet
	ReasonCertificateUntrusted      Reason = "CertificateUntrusted"    // no trusted root stands behind it
	ReasonTLSVersion                Reason = "TLSVersion"              // the server is too old for TLS 1.2
	ReasonNotTLS                    Reason = "NotTLS"                  // the server speaks something else
	ReasonClientCertificateRejected Reason = "ClientCertificateRejected"
	ReasonHandshakeTimeout          Reason = "HandshakeTimeout" // the server accepts and stays silent
	ReasonHandshakeFailed           Reason = "HandshakeFailed"  // in any other way
	ReasonConnectionLost            Reason = "ConnectionLost"   // after it had been established
)

// Reasons are all there are, for metrics that begin at zero.
func Reasons() []Reason {
	return []Reason{
		ReasonPortTaken, ReasonBadConfig, ReasonStartFailed, ReasonDied, ReasonUnresponsive,
		ReasonConnectRefused, ReasonConnectTimeout, ReasonConnectUnreachable,
		ReasonCertificateHostMismatch, ReasonCertificateExpired, ReasonCertificateUntrusted,
		ReasonTLSVersion, ReasonNotTLS, ReasonClientCertificateRejected,
		ReasonHandshakeTimeout, ReasonHandshakeFailed, ReasonConnectionLost,
	}
}

// phrase is part of a line, and the reason that it gives.
type phrase struct {
	text   string
	reason Reason
}

// stages are the beginnings of lines that can tell of a problem; what else is in the line says
// which, and the last phrase of each, which fits always, is for words unknown here. The words
// are those of stunnel 5.50 to 5.76 and OpenSSL 1.1 and 3.
func stages() map[string][]phrase {
	handshake := []phrase{
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
	transfer := []phrase{
		// TLS 1.3 servers look at the client's certificate after the client has finished.
		{"alert certificate", ReasonClientCertificateRejected},
		{"alert bad certificate", ReasonClientCertificateRejected},
		{"alert unknown ca", ReasonClientCertificateRejected},
		{"alert access denied", ReasonClientCertificateRejected},
		{"", ReasonConnectionLost},
	}
	return map[string][]phrase{
		"s_connect: ": {
			{"Connection refused", ReasonConnectRefused},
			{"TIMEOUTconnect exceeded", ReasonConnectTimeout},
			{"Connection timed out", ReasonConnectTimeout},
			{"unreachable", ReasonConnectUnreachable},
			{"No route to host", ReasonConnectUnreachable},
			{"Invalid argument", ReasonConnectUnreachable}, // a loopback source to elsewhere
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

// classifier finds reasons in the words of connections.
type classifier struct{ stages map[string][]phrase }

func newClassifier() classifier { return classifier{stages()} }

// reason is "" for a line that tells of no problem.
func (c classifier) reason(text string) Reason {
	for begin, phrases := range c.stages {
		if !strings.HasPrefix(text, begin) {
			continue
		}
		for _, p := range phrases {
			if strings.Contains(text, p.text) {
				return p.reason
			}
		}
	}
	return ""
}
