package probe_test

import (
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

func TestServerWithBadCertificateOrTLSIsRejected(t *testing.T) {
	authority, untrusted := stunneltest.NewAuthority(t), stunneltest.NewAuthority(t)
	const host = "fs-1.efs.us-east-1.amazonaws.com"
	tests := map[string]struct {
		certificate tls.Certificate
		maxVersion  uint16
		reason      string
	}{
		"valid":             {authority.Valid(t, host), 0, ""},
		"other host":        {authority.Valid(t, "fs-2.efs.us-east-1.amazonaws.com"), 0, tunnelspec.ProbeCertificate},
		"expired":           {authority.Certificate(t, time.Now().Add(-time.Minute), host), 0, tunnelspec.ProbeCertificate},
		"unknown authority": {untrusted.Valid(t, host), 0, tunnelspec.ProbeCertificate},
		"TLS 1.1":           {authority.Valid(t, host), tls.VersionTLS11, tunnelspec.ProbeHandshake},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server := stunneltest.Serve(t, &tls.Config{ //nolint:gosec // one case needs an old version
				Certificates: []tls.Certificate{tt.certificate}, MinVersion: tls.VersionTLS10, MaxVersion: tt.maxVersion,
			}, nil)
			conn, err := (&probe.Network{CAFile: authority.File}).Server(t.Context(), server.Address, probe.Peer{Host: host})
			if err == nil {
				conn.Close()
			}
			if got := probe.Reason(err); got != tt.reason {
				t.Errorf("got %q (%v), want %q", got, err, tt.reason)
			}
		})
	}
}

func TestServerWithoutTLSFailsTheHandshake(t *testing.T) {
	authority := stunneltest.NewAuthority(t)
	server, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) // the client's error is checked
		_, _ = conn.Read(make([]byte, 1024))
	}()
	address := netip.MustParseAddrPort(server.Addr().String())
	_, err = (&probe.Network{CAFile: authority.File}).Server(t.Context(), address, probe.Peer{Host: "host"})
	if got := probe.Reason(err); got != tunnelspec.ProbeHandshake {
		t.Errorf("got %q (%v), want %q", got, err, tunnelspec.ProbeHandshake)
	}
}

func TestConnectionToClosedPortIsRefused(t *testing.T) {
	free := stunneltest.FreePort(t, "127.0.0.1")
	if _, err := (&probe.Network{}).Tunnel(t.Context(), free); probe.Reason(err) != tunnelspec.ProbeRefused {
		t.Errorf("got %v", err)
	}
}

func TestBadCAFileIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	server := netip.MustParseAddrPort("127.0.0.1:1")
	if _, err := (&probe.Network{CAFile: file}).Server(t.Context(), server, probe.Peer{Host: "host"}); err == nil {
		t.Error("no error for a missing file")
	}
	if err := os.WriteFile(file, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&probe.Network{CAFile: file}).Server(t.Context(), server, probe.Peer{Host: "host"}); err == nil {
		t.Error("no error for a file without certificate")
	}
}

func TestChangedCAFileIsReadAgain(t *testing.T) {
	const host = "fs-1.efs.us-east-1.amazonaws.com"
	before, after := stunneltest.NewAuthority(t), stunneltest.NewAuthority(t)
	server := stunneltest.Serve(t, &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{after.Valid(t, host)},
	}, nil)
	network := &probe.Network{CAFile: filepath.Join(t.TempDir(), "ca.pem")}
	for _, step := range []struct{ from, reason string }{{before.File, tunnelspec.ProbeCertificate}, {after.File, ""}} {
		text, err := os.ReadFile(step.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(network.CAFile+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(network.CAFile+".new", network.CAFile); err != nil {
			t.Fatal(err)
		}
		conn, err := network.Server(t.Context(), server.Address, probe.Peer{Host: host})
		if err == nil {
			conn.Close()
		}
		if got := probe.Reason(err); got != step.reason {
			t.Errorf("got %q (%v), want %q", got, err, step.reason)
		}
	}
}

// A server that requires a client certificate must not count as down.
func TestClientCertificateIsPresentedToServer(t *testing.T) {
	authority := stunneltest.NewAuthority(t)
	cert, key := authority.ClientFiles(t)
	server := stunneltest.Serve(t, &tls.Config{
		Certificates: []tls.Certificate{authority.Valid(t, "host")}, ClientAuth: tls.RequireAnyClientCert,
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, // with 1.3 the client's handshake succeeds
	}, nil)
	network := &probe.Network{CAFile: authority.File}
	if _, err := network.Server(t.Context(), server.Address, probe.Peer{Host: "host"}); err == nil {
		t.Error("connected without a certificate")
	}
	conn, err := network.Server(t.Context(), server.Address, probe.Peer{Host: "host", Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := network.Server(t.Context(), server.Address, probe.Peer{Host: "host", Cert: cert, Key: cert}); err == nil {
		t.Error("no error for a missing key")
	}
}
