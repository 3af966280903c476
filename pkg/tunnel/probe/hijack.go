package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
)

// ErrHijacked is a connection to the node's own end of a tunnel whose other end is in another
// network namespace: a rule of this node redirects the port, as for a pod's hostPort or a
// Service's nodePort, and whoever has that pod gets the node's NFS traffic in the clear.
var ErrHijacked = errors.New("the node redirects this port to something else, most likely to a pod with that hostPort or a Service with that nodePort")

// An end that is not found is looked for a few times more: one that is closed at this moment is
// gone a little before this end is told.
const (
	hijackLooks = 3
	hijackPause = 20 * time.Millisecond
)

// isHijacked looks for the other end of a fresh connection among the sockets of this network
// namespace. What cannot be found out is an error.
func isHijacked(ctx context.Context, conn net.Conn) (bool, error) {
	own, peer, err := ends(conn)
	if err != nil {
		return false, err
	}
	for range hijackLooks {
		missing, err := isMissing(conn, own, peer)
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

// isMissing says whether the other end of an open connection is not here. The listener that is
// found in its place is not the other end: it only has the port. That nothing is found proves
// something only where this end is found, for kernels without socket diagnostics find nothing.
func isMissing(conn net.Conn, own, peer netip.AddrPort) (bool, error) {
	state, err := sockets.State(peer, own)
	if err == nil && state != unix.BPF_TCP_LISTEN {
		return false, nil
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, err
	}
	_, unknown := sockets.State(own, peer)
	if open, err := isEstablished(conn); !open || err != nil {
		return false, err // the other end may have been here
	}
	if err != nil && unknown != nil {
		return false, fmt.Errorf("finding a connection of this process: %w", unknown)
	}
	return true, nil
}

func ends(conn net.Conn) (own, peer netip.AddrPort, err error) {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	remote, also := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !also {
		return own, peer, fmt.Errorf("connection of type %T: %w", conn, errors.ErrUnsupported)
	}
	own, peer = local.AddrPort(), remote.AddrPort()
	if !own.Addr().Is4() || !peer.Addr().Is4() {
		return own, peer, fmt.Errorf("connection from %s to %s: %w", own, peer, errors.ErrUnsupported)
	}
	return own, peer, nil
}

// isEstablished says whether the other end has closed nothing yet.
func isEstablished(conn net.Conn) (bool, error) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false, fmt.Errorf("connection of type %T: %w", conn, errors.ErrUnsupported)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("reading the state of a connection: %w", err)
	}
	var info *unix.TCPInfo
	var asked error
	err = raw.Control(func(fd uintptr) {
		info, asked = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(err, asked); err != nil {
		return false, fmt.Errorf("reading the state of a connection: %w", err)
	}
	return info.State == unix.BPF_TCP_ESTABLISHED, nil
}
