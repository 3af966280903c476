package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel's interface, as in sock_diag(7) and linux/inet_diag.h. Ports and addresses are in network
// byte order, all other fields in that of the host.
type (
	// request is struct inet_diag_req_v2 after its header.
	request struct {
		Header                          unix.NlMsghdr
		Family, Protocol, Extensions, _ uint8
		States                          uint32 // bits
		ID                              socketID
	}
	// socketID is struct inet_diag_sockid.
	socketID struct {
		LocalPort, RemotePort       [2]byte
		LocalAddress, RemoteAddress [16]byte // an IPv4 address has the first four bytes
		Interface                   uint32   // 0 for any
		Cookie                      [2]uint32
	}
	// filter is the attribute INET_DIAG_REQ_BYTECODE with one struct inet_diag_bc_op and its struct
	// inet_diag_hostcond.
	filter struct {
		Size, Attribute      uint16
		Condition, YesOffset uint8
		NoOffset             uint16
		Family, PrefixLength uint8
		_                    uint16
		Port                 int32 // -1 for any
		Address              [4]byte
	}
	// socket is struct inet_diag_msg.
	socket struct {
		Family, State, Timer, Retransmits   uint8
		ID                                  socketID
		Expires, ReadQueue, WriteQueue, UID uint32
		Inode                               uint32
	}
)

const (
	conditionLocal  = 7 // INET_DIAG_BC_S_COND
	conditionRemote = 8 // INET_DIAG_BC_D_COND

	allStates = 1<<32 - 1
	noCookie  = 1<<32 - 1
	// loopbackIndex is the index of the loopback interface in every network namespace. A lookup
	// without it skips sockets that are bound to the interface.
	loopbackIndex = 1
)

// dump calls report for each IPv4 TCP socket that is in one of the states and has a loopback address
// on the side of the condition. The kernel filters, so that many other connections cost little.
func dump(states uint32, condition uint8, report func(socket)) error {
	const size, program = 20, 16
	return query(struct {
		request
		filter
	}{newRequest(unix.NLM_F_DUMP, states, socketID{}), filter{
		// A match jumps to the end of the program, all else beyond, which rejects the socket.
		Size: size, Attribute: 1, Condition: condition, YesOffset: program, NoOffset: program + 4,
		Family: unix.AF_INET, PrefixLength: 8, Port: -1, Address: [4]byte{127},
	}}, true, report)
}

// lookup calls report for the IPv4 TCP socket that receives packets from remote to local.
func lookup(local, remote netip.AddrPort, report func(socket)) error {
	id := socketID{Interface: loopbackIndex}
	binary.BigEndian.PutUint16(id.LocalPort[:], local.Port())
	binary.BigEndian.PutUint16(id.RemotePort[:], remote.Port())
	copy(id.LocalAddress[:], local.Addr().Unmap().AsSlice())
	copy(id.RemoteAddress[:], remote.Addr().Unmap().AsSlice())
	return query(newRequest(0, allStates, id), false, report)
}

func (id socketID) local() netip.AddrPort  { return addrPort(id.LocalAddress, id.LocalPort) }
func (id socketID) remote() netip.AddrPort { return addrPort(id.RemoteAddress, id.RemotePort) }

func addrPort(address [16]byte, port [2]byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address[:4])), binary.BigEndian.Uint16(port[:]))
}

func newRequest(flags uint16, states uint32, id socketID) request {
	id.Cookie = [2]uint32{noCookie, noCookie}
	return request{
		Header: unix.NlMsghdr{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: unix.NLM_F_REQUEST | flags, Seq: 1},
		Family: unix.AF_INET, Protocol: unix.IPPROTO_TCP, States: states, ID: id,
	}
}

func query(message any, isDump bool, report func(socket)) error {
	encoded, err := binary.Append(nil, binary.NativeEndian, message)
	if err != nil {
		return err
	}
	binary.NativeEndian.PutUint32(encoded, uint32(len(encoded)))
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.Sendto(fd, encoded, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	return receive(fd, isDump, report)
}

func receive(fd int, isDump bool, report func(socket)) error {
	flags := 0
	if !isDump {
		flags = unix.MSG_DONTWAIT // the kernel answers a lookup before Sendto returns
	}
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, flags)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Type == unix.NLMSG_DONE {
				return nil
			}
			s, err := decode(m)
			if err != nil {
				return err
			}
			if report(s); !isDump {
				return nil
			}
		}
	}
}

func decode(m syscall.NetlinkMessage) (s socket, err error) {
	if m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4 {
		return s, syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
	}
	if _, err = binary.Decode(m.Data, binary.NativeEndian, &s); err != nil || m.Header.Type != unix.SOCK_DIAG_BY_FAMILY {
		err = fmt.Errorf("not a message of socket diagnostics: type %d with %d bytes", m.Header.Type, len(m.Data))
	}
	return s, err
}
