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

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
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
	Host string // the server's certificate must be valid for it
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
	roots, err := n.roots()
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
	text, err := os.ReadFile(n.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading trusted certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading trusted certificates: no certificate in the file: %s", n.CAFile)
	}
	n.pool, n.info = pool, info
	return pool, nil
}
