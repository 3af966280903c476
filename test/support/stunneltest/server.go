package stunneltest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Server is a TLS server on a loopback address.
type Server struct {
	Address     netip.AddrPort
	Connections atomic.Int64 // with a successful handshake, closed ones included

	listener net.Listener
	close    context.CancelFunc // closes all connections
	done     sync.WaitGroup
}

// Serve starts a server that is closed after the test. Without a handler, it echoes what it reads.
func Serve(t testing.TB, config *tls.Config, handler func(net.Conn)) *Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if handler == nil {
		handler = echo
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // until the cleanup
	s := &Server{Address: netip.MustParseAddrPort(listener.Addr().String()), listener: listener, close: cancel}
	s.done.Go(func() { s.accept(ctx, config, handler) })
	t.Cleanup(s.Close)
	return s
}

func echo(conn net.Conn) {
	// An error means that the client has closed the connection.
	_, _ = io.Copy(conn, conn)
}

func (s *Server) accept(ctx context.Context, config *tls.Config, handler func(net.Conn)) {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.done.Go(func() { s.serve(ctx, tls.Server(raw, config), handler) })
	}
}

func (s *Server) serve(ctx context.Context, conn *tls.Conn, handler func(net.Conn)) {
	defer conn.Close()
	// Closing through TLS would block on a client that does not read.
	defer context.AfterFunc(ctx, func() { conn.NetConn().Close() })()
	if conn.HandshakeContext(ctx) != nil {
		drain(conn.NetConn())
		return
	}
	s.Connections.Add(1)
	handler(conn)
}

// drainLimit bounds drain for clients that keep the connection open after an alert.
const drainLimit = 5 * time.Second

// drain reads what the client sent before it received the alert. Closing the connection with unread
// data would reset it, and the client could lose the alert.
func drain(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // may be closed already
	}
	_ = conn.SetReadDeadline(time.Now().Add(drainLimit))
	_, _ = io.Copy(io.Discard, conn)
}

// Close closes the server and its connections.
func (s *Server) Close() {
	_ = s.listener.Close() // may be closed already
	s.close()
	s.done.Wait()
}

// FreePort returns a port of a loopback address on which no process listens, a different one on each
// call. It is below the usual ephemeral ports.
func FreePort(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	const lowest, count, each = 10000, 20000, 251 // test programs that run at once start at different ports
	for range 1000 {
		port := lowest + (os.Getpid()*each+int(triedPorts.Add(1)))%count
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer listener.Close()
		return netip.MustParseAddrPort(listener.Addr().String())
	}
	t.Fatalf("no port of %s is free", address)
	return netip.AddrPort{}
}

// triedPorts counts the ports that FreePort has tried.
var triedPorts atomic.Int64
