package supervise_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/tunnel/stunneltest"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// Each server is wrong in one way: nothing gets through, and the status and the log say why.
func TestCausesOfRefusal(t *testing.T) {
	valid := func(w *world) []tls.Certificate { return []tls.Certificate{w.authority.Valid(w.T, hostName)} }
	tests := map[supervise.Reason]func(*world) netip.AddrPort{
		supervise.ReasonCertificateHostMismatch: func(w *world) netip.AddrPort {
			return w.serve(&tls.Config{Certificates: []tls.Certificate{w.authority.Valid(w.T, "other.example.com")}})
		},
		supervise.ReasonCertificateUntrusted: func(w *world) netip.AddrPort {
			other := stunneltest.NewAuthority(w.T)
			return w.serve(&tls.Config{Certificates: []tls.Certificate{other.Valid(w.T, hostName)}})
		},
		supervise.ReasonCertificateExpired: func(w *world) netip.AddrPort {
			expired := w.authority.Certificate(w.T, time.Now().Add(-time.Hour), hostName)
			return w.serve(&tls.Config{Certificates: []tls.Certificate{expired}})
		},
		supervise.ReasonTLSVersion: func(w *world) netip.AddrPort {
			return w.serve(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, Certificates: valid(w)})
		},
		supervise.ReasonClientCertificateRejected: func(w *world) netip.AddrPort {
			return w.serve(&tls.Config{ClientAuth: tls.RequireAnyClientCert, Certificates: valid(w)})
		},
		supervise.ReasonNotTLS:         func(w *world) netip.AddrPort { return w.plainServer("220 hello\r\n") },
		supervise.ReasonConnectRefused: func(w *world) netip.AddrPort { return stunneltest.FreePort(w.T, "127.0.0.1") },
		supervise.ReasonHandshakeFailed: func(w *world) netip.AddrPort {
			return w.plainServer("") // hangs up
		},
	}
	for reason, server := range tests {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tunnel := w.tunnel("fs-1", server(w))
			generation := w.write(tunnel)
			w.supervise()
			w.serving("fs-1", generation)

			w.refused(tunnel.Accept)
			s := w.until("fs-1", "names the cause", func(s supervise.Tunnel) bool { return s.Connection != nil })
			if s.Connection.Reason != reason || s.Connection.Words == "" || s.State != supervise.StateRunning || s.Process != nil {
				t.Errorf("got %+v, want %s", s.Connection, reason)
			}
			if len(s.Problems) != 1 || s.Problems[reason] != 1 {
				t.Errorf("got %v, want one problem", s.Problems)
			}
			if lines := w.log.lines("stunnel says", "fileSystem=fs-1", "reason="+string(reason)); len(lines) == 0 {
				t.Error("no log line names the cause")
			}
		})
	}
}

// refused wants that nothing gets through. The connection may be gone before it is opened.
func (w *world) refused(accept netip.AddrPort) {
	w.Helper()
	conn, err := (&net.Dialer{}).DialContext(w.Context(), "tcp", accept.String())
	if err != nil {
		return
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		w.Fatal(err)
	}
	if err := roundTrip(conn, "secret"); err == nil {
		w.Error("data went through and back")
	}
}

// serve starts a TLS server.
func (w *world) serve(config *tls.Config) netip.AddrPort {
	w.Helper()
	return stunneltest.Serve(w.T, config, nil).Address
}

// plainServer answers without TLS and hangs up.
func (w *world) plainServer(answer string) netip.AddrPort {
	w.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { release(listener) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// All it was sent is read first, or closing would reset the connection.
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

func TestFailoverOrder(t *testing.T) {
	w := newWorld(t)
	second, third := w.server(), w.server()
	tunnel := w.tunnel("fs-1", stunneltest.FreePort(t, "127.0.0.1"), second.Address, third.Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)

	w.echo(w.dial(tunnel.Accept))
	s := w.until("fs-1", "names the server", func(s supervise.Tunnel) bool { return s.Remote != "" })
	if s.Remote != second.Address.String() || s.Connection != nil || s.Problems[supervise.ReasonConnectRefused] != 1 {
		t.Errorf("got %+v, want the second server after one refusal", s)
	}
	second.Close()
	w.echo(w.dial(tunnel.Accept))
	w.until("fs-1", "names the third", func(s supervise.Tunnel) bool { return s.Remote == third.Address.String() })
}

// A lost connection is a problem until the next one.
func TestLostConnection(t *testing.T) {
	w := newWorld(t)
	reset := make(chan struct{})
	server := stunneltest.Serve(t, w.serverConfig(), func(conn net.Conn) {
		_, _ = io.CopyN(conn, conn, 1)
		<-reset
		if raw, ok := conn.(*tls.Conn).NetConn().(*net.TCPConn); ok {
			_ = raw.SetLinger(0) // closing resets
			_ = raw.Close()
		}
	})
	tunnel := w.tunnel("fs-1", server.Address)
	generation := w.write(tunnel)
	w.supervise()
	w.serving("fs-1", generation)
	if err := roundTrip(w.dial(tunnel.Accept), "1"); err != nil {
		t.Fatal(err)
	}
	close(reset)
	w.until("fs-1", "tells of the loss", func(s supervise.Tunnel) bool {
		return s.Connection != nil && s.Connection.Reason == supervise.ReasonConnectionLost
	})
}
