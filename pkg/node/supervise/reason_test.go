package supervise_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

func TestFailedConnectionHasReasonInStatusAndLog(t *testing.T) {
	valid := func(h *harness) []tls.Certificate { return []tls.Certificate{h.authority.Valid(h.T, hostName)} }
	tests := map[tunnelspec.Reason]func(*harness) netip.AddrPort{
		tunnelspec.ReasonCertificateHostMismatch: func(h *harness) netip.AddrPort {
			return h.serveTLS(&tls.Config{Certificates: []tls.Certificate{h.authority.Valid(h.T, "other.example.com")}})
		},
		tunnelspec.ReasonCertificateUntrusted: func(h *harness) netip.AddrPort {
			other := stunneltest.NewAuthority(h.T)
			return h.serveTLS(&tls.Config{Certificates: []tls.Certificate{other.Valid(h.T, hostName)}})
		},
		tunnelspec.ReasonCertificateExpired: func(h *harness) netip.AddrPort {
			expired := h.authority.Certificate(h.T, time.Now().Add(-time.Hour), hostName)
			return h.serveTLS(&tls.Config{Certificates: []tls.Certificate{expired}})
		},
		tunnelspec.ReasonTLSVersion: func(h *harness) netip.AddrPort {
			return h.serveTLS(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, Certificates: valid(h)})
		},
		tunnelspec.ReasonClientCertificateRejected: func(h *harness) netip.AddrPort {
			return h.serveTLS(&tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: valid(h)})
		},
		tunnelspec.ReasonNotTLS:         func(h *harness) netip.AddrPort { return h.servePlain("220 hello\r\n") },
		tunnelspec.ReasonConnectRefused: func(h *harness) netip.AddrPort { return stunneltest.FreePort(h.T, "127.0.0.1") },
		tunnelspec.ReasonHandshakeFailed: func(h *harness) netip.AddrPort {
			return h.servePlain("") // closes the connection
		},
	}
	for reason, server := range tests {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			tunnel := h.newTunnel("fs-1", server(h))
			generation := h.writeSpec(tunnel)
			h.startSupervisor()
			h.waitServing("fs-1", generation)

			h.checkNoEcho(tunnel.Accept)
			s := h.waitFor("fs-1", "reports a problem", func(s tunnelspec.TunnelStatus) bool { return s.Connection != nil })
			if s.Connection.Reason != reason || s.Connection.Message == "" || s.State != tunnelspec.StateRunning || s.Process != nil {
				t.Errorf("got %+v, want %s", s.Connection, reason)
			}
			if len(s.Problems) != 1 || s.Problems[reason] != 1 {
				t.Errorf("got %v, want one problem", s.Problems)
			}
			if lines := h.log.lines("stunnel logged", "fileSystem=fs-1", "reason="+string(reason)); len(lines) == 0 {
				t.Error("no log line has the reason")
			}
		})
	}
}

// checkNoEcho checks that no data passes the tunnel. The connect may fail, too.
func (h *harness) checkNoEcho(accept netip.AddrPort) {
	h.Helper()
	conn, err := (&net.Dialer{}).DialContext(h.Context(), "tcp", accept.String())
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		h.Fatal(err)
	}
	if err := roundTrip(conn, "secret"); err == nil {
		h.Error("got an echo through the tunnel")
	}
}

// serveTLS starts an echo server.
func (h *harness) serveTLS(config *tls.Config) netip.AddrPort {
	h.Helper()
	return stunneltest.Serve(h.T, config, nil).Address
}

// servePlain starts a server that answers without TLS and closes the connection.
func (h *harness) servePlain(answer string) netip.AddrPort {
	h.Helper()
	listener, err := (&net.ListenConfig{}).Listen(h.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { closeListener(listener) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// Closing the connection with unread data would reset it.
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

func TestUnreachableServersFailOverInOrder(t *testing.T) {
	h := newHarness(t)
	second, third := h.startServer(), h.startServer()
	tunnel := h.newTunnel("fs-1", stunneltest.FreePort(t, "127.0.0.1"), second.Address, third.Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)

	h.checkEcho(h.dial(tunnel.Accept))
	s := h.waitFor("fs-1", "reports the server", func(s tunnelspec.TunnelStatus) bool { return s.Remote.IsValid() })
	if s.Remote != second.Address || s.Connection != nil || s.Problems[tunnelspec.ReasonConnectRefused] != 1 {
		t.Errorf("got %+v, want the second server after one refusal", s)
	}
	second.Close()
	h.checkEcho(h.dial(tunnel.Accept))
	h.waitFor("fs-1", "reports the third server", func(s tunnelspec.TunnelStatus) bool { return s.Remote == third.Address })
}

func TestLostConnectionIsReported(t *testing.T) {
	h := newHarness(t)
	reset := make(chan struct{})
	server := stunneltest.Serve(t, h.serverConfig(), func(conn net.Conn) {
		_, _ = io.CopyN(conn, conn, 1)
		<-reset
		if raw, ok := conn.(*tls.Conn).NetConn().(*net.TCPConn); ok {
			_ = raw.SetLinger(0) // closing resets
			_ = raw.Close()
		}
	})
	tunnel := h.newTunnel("fs-1", server.Address)
	generation := h.writeSpec(tunnel)
	h.startSupervisor()
	h.waitServing("fs-1", generation)
	if err := roundTrip(h.dial(tunnel.Accept), "1"); err != nil {
		t.Fatal(err)
	}
	close(reset)
	h.waitFor("fs-1", "reports the loss", func(s tunnelspec.TunnelStatus) bool {
		return s.Connection != nil && s.Connection.Reason == tunnelspec.ReasonConnectionLost
	})
}
