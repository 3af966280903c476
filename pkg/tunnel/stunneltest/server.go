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

// Server is a TLS server on a loopback address, which gives back what it gets. Its handler can
// be another.
type Server struct {
	Address     netip.AddrPort
	Connections atomic.Int64 // whose handshake has succeeded, ever

	listener net.Listener
	mu       sync.Mutex
	open     map[net.Conn]bool // guarded by mu; nil once closed
	done     sync.WaitGroup
}

// Serve starts a server that ends with the test. Without a handler it echoes.
func Serve(t testing.TB, config *tls.Config, handler func(net.Conn)) *Server {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if handler == nil {
		handler = echo
	}
	s := &Server{
		Address:  netip.MustParseAddrPort(listener.Addr().String()),
		listener: listener,
		open:     map[net.Conn]bool{},
	}
	s.done.Go(func() { s.accept(t.Context(), config, handler) })
	t.Cleanup(s.Close)
	return s
}

func echo(conn net.Conn) {
	// The error is the end of the connection, which is the client's to choose.
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
	if !s.hold(conn) {
		return
	}
	defer s.drop(conn)
	if conn.HandshakeContext(ctx) != nil {
		drain(conn.NetConn())
		return
	}
	s.Connections.Add(1)
	handler(conn)
}

// drainLimit is for clients that keep a connection open in spite of an alert.
const drainLimit = 5 * time.Second

// drain reads what a client sent before it knew that it is refused. Closing with that unread
// would reset the connection, and the reset could overtake the alert that says why.
func drain(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite() // it may be closed already
	}
	_ = conn.SetReadDeadline(time.Now().Add(drainLimit))
	_, _ = io.Copy(io.Discard, conn)
}

func (s *Server) hold(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return false
	}
	s.open[conn] = true
	return true
}

func (s *Server) drop(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// Close ends the server and its connections, as a server that goes away would.
func (s *Server) Close() {
	_ = s.listener.Close() // it may be closed already
	s.mu.Lock()
	for conn := range s.open {
		// Not through TLS, which would wait for a client that does not read.
		if conn, ok := conn.(*tls.Conn); ok {
			conn.NetConn().Close()
		}
	}
	s.open = nil
	s.mu.Unlock()
	s.done.Wait()
}

// FreePort is a port of a loopback address on which nobody listens, another one each time. It is
// below those that the kernel gives to whoever asks for any.
func FreePort(t testing.TB, address string) netip.AddrPort {
	t.Helper()
	const lowest, count, each = 10000, 20000, 251 // each program begins somewhere else
	for range 1000 {
		port := lowest + (os.Getpid()*each+int(given.Add(1)))%count
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

// given counts the ports that FreePort has tried.
var given atomic.Int64
