package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel's interface, as in sock_diag(7) and linux/inet_diag.h.
const (
	attributeBytecode = 1
	conditionFrom     = 7 // INET_DIAG_BC_S_COND
	conditionTo       = 8 // INET_DIAG_BC_D_COND

	requestSize         = 56 // struct inet_diag_req_v2
	attributeHeaderSize = 4
	bytecodeSize        = 16 // an operation, and a condition of one IPv4 prefix
	messageSize         = 72 // struct inet_diag_msg
	stateOffset         = 1  // in it
	errnoSize           = 4
	bufferSize          = 64 << 10

	allStates = 1<<32 - 1
	noCookie  = 1<<32 - 1
	// loopbackIndex is the index of the loopback interface in every network namespace. A lookup
	// without it skips sockets that are bound to the interface.
	loopbackIndex = 1
)

// side selects the end of a connection that must have a loopback address.
type side byte

const (
	toLoopback   side = conditionTo
	fromLoopback side = conditionFrom
)

var errMessage = errors.New("not a message of socket diagnostics")

// socket is an entry of the kernel's answer.
type socket struct {
	local, remote netip.AddrPort
	uid, inode    uint32
}

// dump calls report for each IPv4 TCP socket that is in one of the states and has a loopback address
// on one side. The kernel filters, so that many other connections cost little.
func dump(states uint32, which side, report func(socket)) error {
	unspecified := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	request := newRequest(unix.NLM_F_REQUEST|unix.NLM_F_DUMP, states, socketID{local: unspecified, remote: unspecified}, atLoopback(which))
	return query(request, 0, func(m syscall.NetlinkMessage) (done bool, err error) {
		if m.Header.Type == unix.NLMSG_DONE {
			return true, nil
		}
		if len(m.Data) >= messageSize {
			report(socketOf(m.Data))
		}
		return false, nil
	})
}

// query sends a request and calls read for each message of the answer until read reports the last.
func query(request []byte, flags int, read func(syscall.NetlinkMessage) (done bool, err error)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("listing sockets of the kernel: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("listing sockets of the kernel: %w", err)
	}
	buffer := make([]byte, bufferSize)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing sockets of the kernel: %w", err)
		}
		done, err := readAll(buffer[:n], read)
		if err != nil {
			return fmt.Errorf("listing sockets of the kernel: %w", err)
		}
		if done {
			return nil
		}
	}
}

func readAll(answer []byte, read func(syscall.NetlinkMessage) (done bool, err error)) (done bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return true, err
	}
	for _, m := range messages {
		if m.Header.Type == unix.NLMSG_ERROR {
			return true, errnoOf(m.Data)
		}
		if done, err := read(m); done || err != nil {
			return true, err
		}
	}
	return false, nil
}

func errnoOf(data []byte) error {
	if len(data) < errnoSize {
		return errMessage
	}
	return syscall.Errno(-int32(binary.NativeEndian.Uint32(data)))
}

// socketID selects sockets by addresses and interface.
type socketID struct {
	local, remote netip.AddrPort
	index         uint32 // of the interface; 0 for any
}

// newRequest encodes a header, struct inet_diag_req_v2 and an attribute. Addresses and ports are in
// network byte order, all other fields in that of the host.
func newRequest(flags uint16, states uint32, i socketID, attribute []byte) []byte {
	native := binary.NativeEndian
	r := native.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+requestSize+len(attribute)))
	r = native.AppendUint16(r, unix.SOCK_DIAG_BY_FAMILY)
	r = native.AppendUint16(r, flags)
	r = native.AppendUint32(r, 1) // sequence number
	r = native.AppendUint32(r, 0) // sender: the kernel fills it in

	r = append(r, unix.AF_INET, unix.IPPROTO_TCP, 0, 0) // no extensions, padding
	r = native.AppendUint32(r, states)
	r = binary.BigEndian.AppendUint16(r, i.local.Port())
	r = binary.BigEndian.AppendUint16(r, i.remote.Port())
	r = appendAddress(r, i.local.Addr())
	r = appendAddress(r, i.remote.Addr())
	r = native.AppendUint32(r, i.index)
	r = native.AppendUint32(r, noCookie)
	r = native.AppendUint32(r, noCookie)
	return append(r, attribute...)
}

// appendAddress pads the address to the size of an IPv6 address.
func appendAddress(r []byte, address netip.Addr) []byte {
	four := address.As4()
	return append(append(r, four[:]...), make([]byte, 12)...)
}

// atLoopback encodes the filter for 127.0.0.0/8 on one side.
func atLoopback(which side) []byte {
	native := binary.NativeEndian
	a := native.AppendUint16(nil, attributeHeaderSize+bytecodeSize)
	a = native.AppendUint16(a, attributeBytecode)
	// struct inet_diag_bc_op: a match jumps to the end of the code, all else beyond, which rejects
	// it.
	a = append(a, byte(which), bytecodeSize)
	a = native.AppendUint16(a, bytecodeSize+attributeHeaderSize)
	// struct inet_diag_hostcond: family, prefix length, any port, 127.0.0.0.
	a = append(a, unix.AF_INET, 8, 0, 0, 0xff, 0xff, 0xff, 0xff)
	return append(a, 127, 0, 0, 0)
}

// socketOf decodes struct inet_diag_msg.
func socketOf(data []byte) socket {
	return socket{
		local:  netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[8:12])), binary.BigEndian.Uint16(data[4:])),
		remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[24:28])), binary.BigEndian.Uint16(data[6:])),
		uid:    binary.NativeEndian.Uint32(data[64:]),
		inode:  binary.NativeEndian.Uint32(data[68:]),
	}
}
