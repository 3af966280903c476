package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The request and the answer of sock_diag(7) for one TCP socket.
const (
	diagRequestBytes = 56 // struct inet_diag_req_v2
	diagStateOffset  = 1  // of the answer: struct inet_diag_msg
	errnoBytes       = 4
	// loopbackIndex is the loopback interface's in every network namespace. Without it the
	// kernel passes over sockets that are bound to that interface.
	loopbackIndex = 1
)

var errDiag = errors.New("the answer is none of socket diagnostics")

// socketState is the state of the one TCP socket of this network namespace that packets from
// remote to local would reach: one of a connection, or else a listener. The error is unix.ENOENT
// when there is neither. It needs no rights.
func socketState(local, remote netip.AddrPort) (uint8, error) {
	reply, err := exchange(diagRequest(local, remote))
	if err != nil {
		return 0, fmt.Errorf("looking for a socket: %w", err)
	}
	kind, body, err := firstMessage(reply)
	switch {
	case err != nil:
		return 0, err
	case kind == unix.NLMSG_ERROR && len(body) >= errnoBytes:
		return 0, fmt.Errorf("looking for a socket: %w", unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
	case kind != unix.SOCK_DIAG_BY_FAMILY || len(body) <= diagStateOffset:
		return 0, fmt.Errorf("%w: message of type %d with %d bytes", errDiag, kind, len(body))
	}
	return body[diagStateOffset], nil
}

// exchange sends one request over a socket of its own. The kernel answers before the request
// returns.
func exchange(request []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // it holds nothing that could be lost
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, unix.MSG_DONTWAIT)
	if err != nil {
		return nil, err
	}
	return reply[:n], nil
}

func firstMessage(reply []byte) (kind uint16, body []byte, err error) {
	if len(reply) < unix.NLMSG_HDRLEN {
		return 0, nil, fmt.Errorf("%w: %d bytes", errDiag, len(reply))
	}
	length := int(binary.NativeEndian.Uint32(reply))
	if length < unix.NLMSG_HDRLEN || length > len(reply) {
		return 0, nil, fmt.Errorf("%w: a message of %d bytes in %d", errDiag, length, len(reply))
	}
	return binary.NativeEndian.Uint16(reply[4:]), reply[unix.NLMSG_HDRLEN:length], nil
}

// diagRequest has addresses and ports in the byte order of the network, all else in the machine's.
func diagRequest(local, remote netip.AddrPort) []byte {
	const allStates = 1<<32 - 1
	const noCookie = 1<<32 - 1
	m := binary.NativeEndian.AppendUint32(nil, unix.NLMSG_HDRLEN+diagRequestBytes)
	m = binary.NativeEndian.AppendUint16(m, unix.SOCK_DIAG_BY_FAMILY)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST)
	m = binary.NativeEndian.AppendUint32(m, 1) // sequence number
	m = binary.NativeEndian.AppendUint32(m, 0) // sender: the kernel fills it in

	m = append(m, unix.AF_INET, unix.IPPROTO_TCP, 0, 0) // no extensions, padding
	m = binary.NativeEndian.AppendUint32(m, allStates)
	m = binary.BigEndian.AppendUint16(m, local.Port())
	m = binary.BigEndian.AppendUint16(m, remote.Port())
	m = appendAddress(m, local.Addr())
	m = appendAddress(m, remote.Addr())
	m = binary.NativeEndian.AppendUint32(m, loopbackIndex)
	m = binary.NativeEndian.AppendUint32(m, noCookie)
	return binary.NativeEndian.AppendUint32(m, noCookie)
}

// appendAddress fills the space of an IPv6 address.
func appendAddress(m []byte, address netip.Addr) []byte {
	four := address.As4()
	return append(append(m, four[:]...), make([]byte, 12)...)
}
