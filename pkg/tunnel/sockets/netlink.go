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
	// loopbackIndex is the loopback interface's in every network namespace. Without it, a lookup
	// passes over sockets that are bound to that interface.
	loopbackIndex = 1
)

// end is which end of a connection must be at a loopback address.
type end byte

const (
	toLoopback   end = conditionTo
	fromLoopback end = conditionFrom
)

var errMessage = errors.New("a message that is none of socket diagnostics")

// socket is one that the kernel told of.
type socket struct {
	local, remote netip.AddrPort
	uid, inode    uint32
}

// dump tells of each TCP socket over IPv4 in one of the states that has one end at a loopback
// address. The kernel chooses, so that a node with many other connections pays little.
func dump(states uint32, which end, tell func(socket)) error {
	unspecified := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	request := newRequest(unix.NLM_F_REQUEST|unix.NLM_F_DUMP, states, id{local: unspecified, remote: unspecified}, atLoopback(which))
	return query(request, 0, func(m syscall.NetlinkMessage) (done bool, err error) {
		if m.Header.Type == unix.NLMSG_DONE {
			return true, nil
		}
		if len(m.Data) >= messageSize {
			tell(socketOf(m.Data))
		}
		return false, nil
	})
}

// query sends a request, and has each message of the answer read until one is the last.
func query(request []byte, flags int, read func(syscall.NetlinkMessage) (done bool, err error)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("asking the kernel for its sockets: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking the kernel for its sockets: %w", err)
	}
	buffer := make([]byte, bufferSize)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("asking the kernel for its sockets: %w", err)
		}
		done, err := readAll(buffer[:n], read)
		if err != nil {
			return fmt.Errorf("asking the kernel for its sockets: %w", err)
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

// id names sockets by their addresses and interface.
type id struct {
	local, remote netip.AddrPort
	index         uint32 // of the interface; 0 for any
}

// newRequest is a header, struct inet_diag_req_v2 and an attribute. Addresses and ports are in the
// byte order of the network, all else in the machine's.
func newRequest(flags uint16, states uint32, i id, attribute []byte) []byte {
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

// appendAddress fills the space of an IPv6 address.
func appendAddress(r []byte, address netip.Addr) []byte {
	four := address.As4()
	return append(append(r, four[:]...), make([]byte, 12)...)
}

// atLoopback is the attribute by which the kernel chooses.
func atLoopback(which end) []byte {
	native := binary.NativeEndian
	a := native.AppendUint16(nil, attributeHeaderSize+bytecodeSize)
	a = native.AppendUint16(a, attributeBytecode)
	// struct inet_diag_bc_op: what is true goes to the end, what is false beyond it.
	a = append(a, byte(which), bytecodeSize)
	a = native.AppendUint16(a, bytecodeSize+attributeHeaderSize)
	// struct inet_diag_hostcond: family, prefix's length, any port, 127.0.0.0.
	a = append(a, unix.AF_INET, 8, 0, 0, 0xff, 0xff, 0xff, 0xff)
	return append(a, 127, 0, 0, 0)
}

// socketOf reads struct inet_diag_msg.
func socketOf(data []byte) socket {
	return socket{
		local:  netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[8:12])), binary.BigEndian.Uint16(data[4:])),
		remote: netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[24:28])), binary.BigEndian.Uint16(data[6:])),
		uid:    binary.NativeEndian.Uint32(data[64:]),
		inode:  binary.NativeEndian.Uint32(data[68:]),
	}
}
