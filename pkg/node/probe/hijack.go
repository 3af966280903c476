package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
)

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
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(hijackPause):
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
