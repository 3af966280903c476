package supervise

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
)

func TestParseLine(t *testing.T) {
	tests := map[string]struct {
		raw  string
		want line
	}{
		"of a connection":       {"2026.11.21 12:00:58 LOG3[12]: No more addresses to connect", line{slog.LevelError, "12", "No more addresses to connect"}},
		"of the main thread":    {"2026.11.21 12:00:57 LOG5[ui]: Configuration successful", line{slog.LevelDebug, mainThread, "Configuration successful"}},
		"warning":               {"2026.11.21 12:00:57 LOG4[0]: CERT: Subject checks failed", line{slog.LevelWarn, "0", "CERT: Subject checks failed"}},
		"error before it runs":  {"[!] Binding service [fs-1] failed", line{slog.LevelError, mainThread, "Binding service [fs-1] failed"}},
		"detail before it runs": {"[ ] No PRNG seeding was required", line{slog.LevelDebug, mainThread, "No PRNG seeding was required"}},
		"of another program":    {"stunnel: error while loading shared libraries", line{slog.LevelWarn, mainThread, "stunnel: error while loading shared libraries"}},
		"ordinary close": {
			"2026.11.21 12:00:57 LOG3[0]: transfer: s_poll_wait: TIMEOUTclose exceeded: closing",
			line{slog.LevelDebug, "0", "transfer: s_poll_wait: TIMEOUTclose exceeded: closing"},
		},
		"no OCSP response": {
			"2026.11.21 12:00:57 LOG3[0]: OCSP: No OCSP stapling response received",
			line{slog.LevelDebug, "0", "OCSP: No OCSP stapling response received"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parseLine(tt.raw), cmp.AllowUnexported(line{})); diff != "" {
				t.Errorf("line mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReasonsOfLogLines has lines that are hard to provoke. Other tests use a real stunnel.
func TestReasonsOfLogLines(t *testing.T) {
	tests := map[string]tunnelspec.Reason{
		"s_connect: s_poll_wait 10.0.0.4:2049: TIMEOUTconnect exceeded":                                tunnelspec.ReasonConnectTimeout,
		"s_connect: connect 10.0.0.4:2049: Connection timed out (110)":                                 tunnelspec.ReasonConnectTimeout,
		"s_connect: connect 10.0.0.4:2049: No route to host (113)":                                     tunnelspec.ReasonConnectUnreachable,
		"s_connect: connect 10.0.0.4:2049: Network is unreachable (101)":                               tunnelspec.ReasonConnectUnreachable,
		"s_connect: connecting 10.0.0.4:2049":                                                          "",
		"ssl_start: s_poll_wait: TIMEOUTbusy exceeded: sending reset":                                  tunnelspec.ReasonHandshakeTimeout,
		"CERT: No matching host name found":                                                            tunnelspec.ReasonCertificateHostMismatch,
		"CERT: Pre-verification error: certificate is not yet valid":                                   tunnelspec.ReasonCertificateExpired,
		"CERT: Pre-verification error: self-signed certificate in certificate chain":                   tunnelspec.ReasonCertificateUntrusted,
		"SSL_connect: ssl/record/rec_layer_s3.c:1: error:0A000412:SSL routines::alert bad certificate": tunnelspec.ReasonClientCertificateRejected,
		"SSL_connect: ssl/record/rec_layer_s3.c:1: error:0A000126:SSL routines::unexpected eof":        tunnelspec.ReasonHandshakeFailed,
		"SSL_read: Connection reset by peer (104)":                                                     tunnelspec.ReasonConnectionLost,
		"readsocket: Connection reset by peer (104)":                                                   "", // of the NFS client's connection
		"Connection closed: 0 byte(s) sent to TLS, 0 byte(s) sent to socket":                           "",
		"transfer: s_poll_wait: TIMEOUTidle exceeded: closing":                                         "",
	}
	for text, want := range tests {
		if got := reasonOf(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestTrackedIPv6ConnectionsAreBounded(t *testing.T) {
	p := newTunnel("fs-1", 0)
	now := time.Now()
	for i := range 3 * maxConns {
		thread := string(rune('a' + i))
		p.handleLine(line{slog.LevelDebug, thread, "s_connect: connected 2001:db8::1:2049"}, now)
	}
	if len(p.conns) != maxConns {
		t.Errorf("got %d tracked connections, want at most %d", len(p.conns), maxConns)
	}
	p.handleLine(line{slog.LevelDebug, "a", "TLS connected: new session negotiated"}, now)
	if want := netip.MustParseAddrPort("[2001:db8::1]:2049"); p.reported.Remote != want {
		t.Errorf("got remote %s, want %s", p.reported.Remote, want)
	}
}

func TestServersOfOpenConnections(t *testing.T) {
	p := newTunnel("fs-1", 0)
	handle := func(thread, text string) {
		p.handleLine(line{slog.LevelDebug, thread, text}, time.Now())
	}
	for _, tt := range []struct {
		thread, text string
		want         []string
	}{
		{"1", "s_connect: connected 10.0.0.2:2049", nil}, // no handshake yet
		{"1", "TLS connected: new session negotiated", []string{"10.0.0.2:2049"}},
		{"2", "TLS connected: without a connect before", []string{"10.0.0.2:2049"}},
		{"3", "s_connect: connected 10.0.0.1:2049", []string{"10.0.0.2:2049"}},
		{"3", "TLS connected: previous session reused", []string{"10.0.0.1:2049", "10.0.0.2:2049"}},
		{"4", "s_connect: connected 10.0.0.1:2049", []string{"10.0.0.1:2049", "10.0.0.2:2049"}},
		{"4", "TLS connected: previous session reused", []string{"10.0.0.1:2049", "10.0.0.2:2049"}},
		{"3", "Connection closed: 1 byte(s) sent to TLS, 1 byte(s) sent to socket", []string{"10.0.0.1:2049", "10.0.0.2:2049"}},
		{"1", "Connection reset: 1 byte(s) sent to TLS, 1 byte(s) sent to socket", []string{"10.0.0.1:2049"}},
	} {
		handle(tt.thread, tt.text)
		var got []string
		for _, server := range p.servers() {
			got = append(got, server.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("after %s of %s (-want +got):\n%s", tt.text, tt.thread, diff)
		}
	}
}
