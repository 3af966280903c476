// Package sockets asks the kernel which TCP sockets of this network namespace use loopback
// addresses: who is connected to a tunnel's port, and who listens there. It needs no rights.
package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Uses are the established connections to each loopback address and port.
type Uses map[netip.AddrPort]int

// OwnUID is whom Clients is to except so that the connections of a node's agent, which runs as the
// user of this process, are not taken for somebody's use of a tunnel. Nobody is excepted if that is
// root: the kernel's NFS client is root's, too.
func OwnUID() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return -1
}

// Clients counts the connections that lead to loopback addresses, from their clients' end. Those
// of user exceptUID do not count; -1 excepts nobody.
func Clients(exceptUID int) (Uses, error) {
	uses := Uses{}
	err := dump(1<<unix.BPF_TCP_ESTABLISHED, toLoopback, func(s socket) {
		if exceptUID < 0 || s.uid != uint32(exceptUID) {
			uses[s.remote]++
		}
	})
	return uses, err
}

// Listeners are the inodes of the sockets that listen at each loopback address and port.
type Listeners map[netip.AddrPort][]uint32

// Listening says who listens at loopback addresses.
func Listening() (Listeners, error) {
	all := Listeners{}
	err := dump(1<<unix.BPF_TCP_LISTEN, fromLoopback, func(s socket) {
		all[s.local] = append(all[s.local], s.inode)
	})
	return all, err
}

// Inode is the number of a socket, as Listening gives it.
func Inode(file *os.File) (uint32, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("looking at a socket: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.New("looking at a socket: it has no inode")
	}
	return uint32(stat.Ino), nil
}

// socket is one that the kernel told of.
type socket struct {
	local, remote netip.AddrPort
	uid, inode    uint32
}

// What follows is the kernel's interface, as in sock_diag(7) and linux/inet_diag.h.

const (
	sockDiagByFamily    = 20
	attributeBytecode   = 1
	conditionFrom       = 7 // INET_DIAG_BC_S_COND
	conditionTo         = 8 // INET_DIAG_BC_D_COND
	requestSize         = 56
	attributeHeaderSize = 4
	bytecodeSize        = 16 // an operation, and a condition of one IPv4 prefix
	messageSize         = 72
	bufferSize          = 64 << 10
)

type end byte

const (
	toLoopback   end = conditionTo
	fromLoopback end = conditionFrom
)

// dump tells of each TCP socket over IPv4 in one of the states that has one end at a loopback
// address. The kernel chooses, so that a node with many other connections pays little.
func dump(states uint32, which end, tell func(socket)) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("asking the kernel for its sockets: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Sendto(fd, request(states, which), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("asking the kernel for its sockets: %w", err)
	}
	buffer := make([]byte, bufferSize)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("asking the kernel for its sockets: %w", err)
		}
		done, err := read(buffer[:n], tell)
		if done || err != nil {
			return err
		}
	}
}

// request is a header, struct inet_diag_req_v2 and the condition.
func request(states uint32, which end) []byte {
	r := make([]byte, unix.NLMSG_HDRLEN+requestSize, unix.NLMSG_HDRLEN+requestSize+attributeHeaderSize+bytecodeSize)
	native := binary.NativeEndian
	native.PutUint32(r[0:], uint32(cap(r)))
	native.PutUint16(r[4:], sockDiagByFamily)
	native.PutUint16(r[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	body := r[unix.NLMSG_HDRLEN:]
	body[0], body[1] = unix.AF_INET, unix.IPPROTO_TCP
	native.PutUint32(body[4:], states)
	r = native.AppendUint16(r, attributeHeaderSize+bytecodeSize)
	r = native.AppendUint16(r, attributeBytecode)
	// struct inet_diag_bc_op: what is true goes to the end, what is false beyond it.
	r = append(r, byte(which), bytecodeSize)
	r = native.AppendUint16(r, bytecodeSize+attributeHeaderSize)
	// struct inet_diag_hostcond: family, prefix's length, any port, 127.0.0.0.
	r = append(r, unix.AF_INET, 8, 0, 0, 0xff, 0xff, 0xff, 0xff)
	return append(r, 127, 0, 0, 0)
}

// read takes the messages of one answer. It is done after the last one.
func read(answer []byte, tell func(socket)) (done bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return true, fmt.Errorf("reading the kernel's sockets: %w", err)
	}
	for _, m := range messages {
		switch {
		case m.Header.Type == unix.NLMSG_DONE:
			return true, nil
		case m.Header.Type == unix.NLMSG_ERROR:
			return true, fmt.Errorf("asking the kernel for its sockets: %w", errnoOf(m.Data))
		case len(m.Data) >= messageSize:
			tell(socketOf(m.Data))
		}
	}
	return false, nil
}

func errnoOf(data []byte) error {
	if len(data) < int(unsafe.Sizeof(int32(0))) {
		return unix.EPROTO
	}
	return syscall.Errno(-int32(binary.NativeEndian.Uint32(data)))
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
