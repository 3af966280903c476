package supervise

import (
	"regexp"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

// Reasons returns all reasons. docs/operations.md explains each.
func Reasons() []tunnelspec.Reason {
	reasons := []tunnelspec.Reason{tunnelspec.ReasonPortTaken, tunnelspec.ReasonBadConfig, tunnelspec.ReasonStartFailed, tunnelspec.ReasonDied, tunnelspec.ReasonUnresponsive}
	for _, p := range patterns {
		reasons = append(reasons, p.reason)
	}
	return reasons
}

// patterns match the log lines of stunnel 5.50 to 5.76 with OpenSSL 1.1 and 3. The first match wins.
var patterns = []struct {
	reason tunnelspec.Reason
	lines  *regexp.Regexp
}{
	{tunnelspec.ReasonExhausted, regexp.MustCompile(`^Connection rejected: `)},
	{tunnelspec.ReasonConnectRefused, regexp.MustCompile(`^s_connect: .*(Connection refused|Connection reset)`)},
	{tunnelspec.ReasonConnectTimeout, regexp.MustCompile(`^s_connect: .*(TIMEOUTconnect exceeded|Connection timed out)`)},
	// An argument is invalid for a connection from a loopback address to another network.
	{tunnelspec.ReasonConnectUnreachable, regexp.MustCompile(`^s_connect: .*(unreachable|No route to host|Invalid argument)`)},
	{tunnelspec.ReasonCertificateHostMismatch, regexp.MustCompile(`^CERT: (Subject checks failed|No matching host name found)`)},
	{tunnelspec.ReasonCertificateExpired, regexp.MustCompile(`^CERT: Pre-verification error: .*(expired|not yet valid)`)},
	{tunnelspec.ReasonCertificateUntrusted, regexp.MustCompile(`^(CERT: Pre-verification error: |SSL_connect.*certificate verify failed)`)},
	{tunnelspec.ReasonTLSVersion, regexp.MustCompile(`^SSL_connect.*(alert protocol version|unsupported protocol)`)},
	{tunnelspec.ReasonNotTLS, regexp.MustCompile(`^SSL_connect.*(wrong version number|packet length too long|http request)`)},
	// TLS 1.3 servers verify the client's certificate after the client has finished the handshake.
	{tunnelspec.ReasonClientCertificateRejected, regexp.MustCompile(`^SSL_(connect|read|write).*alert (certificate|bad certificate|unknown ca|access denied)`)},
	{tunnelspec.ReasonHandshakeTimeout, regexp.MustCompile(`^ssl_start: .*TIMEOUTbusy exceeded`)},
	{tunnelspec.ReasonHandshakeFailed, regexp.MustCompile(`^SSL_connect`)},
	{tunnelspec.ReasonConnectionLost, regexp.MustCompile(`^(TLS fd: |SSL_read|SSL_write)`)},
}

// reasonOf returns "" for a line that reports no problem of a connection.
func reasonOf(text string) tunnelspec.Reason {
	for _, p := range patterns {
		if p.lines.MatchString(text) {
			return p.reason
		}
	}
	return ""
}
