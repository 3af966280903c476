package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// Dialer opens the connections of probes.
type Dialer interface {
	// Tunnel connects to the local address of a tunnel.
	Tunnel(ctx context.Context, accept netip.AddrPort) (net.Conn, error)
	// Server connects to a mount target without the tunnel, and verifies the server's certificate as
	// the tunnel does.
	Server(ctx context.Context, server netip.AddrPort, peer Peer) (net.Conn, error)
}

// Peer is how a tunnel and its servers authenticate to each other.
type Peer struct {
	Host   string // the server's certificate must be valid for it
	CAFile string // PEM, of the roots that it must come from; "" for the Network's
	// Cert and Key are the files of the client certificate, in PEM; "" for none.
	Cert, Key string
}

// Network is the Dialer of a node. It must not be copied.
type Network struct {
	CAFile string       // PEM; "" for the system's trust store
	Log    *slog.Logger // nil for none

	sockets    sockets.Lister
	logUnknown sync.Once // that it is unknown whether a port is redirected

	mu   sync.Mutex
	pool *x509.CertPool // guarded by mu; nil before the first use
	info os.FileInfo    // guarded by mu; of the file that pool was read from
}

// Tunnel implements Dialer. The error is ErrHijacked when the connection leaves this network
// namespace. A connection for which this is unknown is used.
func (n *Network) Tunnel(ctx context.Context, accept netip.AddrPort) (net.Conn, error) {
	conn, err := tcpDialer().DialContext(ctx, "tcp", accept.String())
	if err != nil {
		return nil, fmt.Errorf("connecting to the tunnel: %w", err)
	}
	hijacked, err := isHijacked(ctx, &n.sockets, conn)
	if hijacked {
		conn.Close()
		return nil, fmt.Errorf("connecting to the tunnel: %w", ErrHijacked)
	}
	if err != nil && ctx.Err() == nil && n.Log != nil {
		n.logUnknown.Do(func() {
			n.Log.Warn("redirected ports cannot be detected on this node", "err", err)
		})
	}
	return conn, nil
}

// tcpDialer has no keep-alive: the probes do its work.
func tcpDialer() *net.Dialer { return &net.Dialer{KeepAlive: -1} }

// Server implements Dialer.
func (n *Network) Server(ctx context.Context, server netip.AddrPort, peer Peer) (net.Conn, error) {
	roots, err := n.rootsOf(peer)
	if err != nil {
		return nil, err
	}
	certificates, err := peer.certificates()
	if err != nil {
		return nil, err
	}
	tcpConn, err := tcpDialer().DialContext(ctx, "tcp", server.String())
	if err != nil {
		return nil, fmt.Errorf("connecting to the mount target: %w", err)
	}
	conn := tls.Client(tcpConn, &tls.Config{
		RootCAs: roots, ServerName: peer.Host, Certificates: certificates, MinVersion: tls.VersionTLS12,
	})
	if err := conn.HandshakeContext(ctx); err != nil {
		tcpConn.Close()
		return nil, fmt.Errorf("connecting to the mount target: %w: %w", errHandshake, err)
	}
	return conn, nil
}

var errHandshake = errors.New("TLS handshake")

// certificates reads the files each time: they are renewed every hour, and seldom needed.
func (p Peer) certificates() ([]tls.Certificate, error) {
	if p.Cert == "" {
		return nil, nil
	}
	certificate, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	return []tls.Certificate{certificate}, nil
}

// rootsOf reads a peer's own file each time, which has few certificates.
func (n *Network) rootsOf(peer Peer) (*x509.CertPool, error) {
	if peer.CAFile == "" || peer.CAFile == n.CAFile {
		return n.roots()
	}
	return readRoots(peer.CAFile)
}

func readRoots(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading trusted certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading trusted certificates: no certificate in the file: %s", file)
	}
	return pool, nil
}

// roots reads the file again only when it has changed: a bundle has a hundred certificates, and all
// servers of a tunnel that fails are probed at once.
func (n *Network) roots() (*x509.CertPool, error) {
	if n.CAFile == "" {
		return nil, nil // the system's trust store
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	info, err := os.Stat(n.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading trusted certificates: %w", err)
	}
	if n.pool != nil && os.SameFile(info, n.info) && info.ModTime().Equal(n.info.ModTime()) && info.Size() == n.info.Size() {
		return n.pool, nil
	}
	pool, err := readRoots(n.CAFile)
	if err == nil {
		n.pool, n.info = pool, info
	}
	return pool, err
}

// The other end is looked up more than once: when it closes, its socket is gone a little before this
// end leaves the state ESTABLISHED.
const (
	hijackAttempts = 3
	hijackPause    = 20 * time.Millisecond
)

// isHijacked reports whether the other end of a new connection is in another network namespace. It
// returns an error if that is unknown.
func isHijacked(ctx context.Context, all *sockets.Lister, conn net.Conn) (bool, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false, fmt.Errorf("connection of type %T: %w", conn, errors.ErrUnsupported)
	}
	for range hijackAttempts {
		missing, err := isPeerMissing(all, tcp)
		if !missing || err != nil {
			return false, err
		}
		if !loop.Pause(ctx, hijackPause) {
			return false, ctx.Err()
		}
	}
	return true, nil
}

// isPeerMissing reports whether this network namespace lacks the other end of an open connection. The
// lookup finds the listener on the port if there is no such connection. Finding nothing is proof only
// if the own end is found: kernels without socket diagnostics find nothing at all.
func isPeerMissing(all *sockets.Lister, conn *net.TCPConn) (bool, error) {
	own, ownErr := netip.ParseAddrPort(conn.LocalAddr().String())
	peer, peerErr := netip.ParseAddrPort(conn.RemoteAddr().String())
	if ownErr != nil || peerErr != nil || !own.Addr().Is4() || !peer.Addr().Is4() {
		return false, fmt.Errorf("connection from %s to %s: %w", conn.LocalAddr(), conn.RemoteAddr(), errors.ErrUnsupported)
	}
	state, err := all.State(peer, own)
	if err == nil && state != unix.BPF_TCP_LISTEN {
		return false, nil
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	_, ownErr = all.State(own, peer)
	if open, err := isEstablished(conn); !open || err != nil {
		return false, err // the other end may have closed before the lookup
	}
	if err != nil && ownErr != nil {
		return false, fmt.Errorf("looking up a connection of this process: %w", ownErr)
	}
	return true, nil
}

// isEstablished reports whether neither end has closed the connection.
func isEstablished(conn *net.TCPConn) (bool, error) {
	var info *unix.TCPInfo
	var infoErr error
	raw, err := conn.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		})
	}
	if err := errors.Join(err, infoErr); err != nil {
		return false, fmt.Errorf("reading the state of a connection: %w", err)
	}
	return info.State == unix.BPF_TCP_ESTABLISHED, nil
}
