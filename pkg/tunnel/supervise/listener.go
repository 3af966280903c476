package supervise

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
)

// backlog is how many connections may wait while stunnel starts; the NFS client has one or two for
// each mount.
const backlog = 128

// listener is the socket that listens on a tunnel's port. The supervisor holds it for as long as
// there is a tunnel, and gives it to one stunnel process after the other, so that a connection
// never finds the port closed: one refusal costs the kernel's NFS client 3 s, a wait costs what
// the start of stunnel does.
type listener struct {
	file    *os.File
	address netip.AddrPort
	inode   uint32
}

// listen opens a tunnel's port. A supervisor of the same user, in the pod that this one takes over
// from or hands over to, may listen there, too; whoever else has it makes it EADDRINUSE.
func listen(address netip.AddrPort) (*listener, error) {
	family, sockaddr := socketAddress(address)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	if err := prepare(fd, sockaddr); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", address, err), unix.Close(fd))
	}
	return adopt(os.NewFile(uintptr(fd), address.String()), address)
}

func prepare(fd int, sockaddr unix.Sockaddr) error {
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	// What comes from the network for a loopback address ends here, whatever the node's settings
	// let in. Kernels before 5.7 want a right for it that the pod does not have; they drop such
	// packets unless route_localnet is set.
	if err := unix.BindToDevice(fd, "lo"); err != nil && !errors.Is(err, unix.EPERM) {
		return fmt.Errorf("binding to the loopback interface: %w", err)
	}
	if err := unix.Bind(fd, sockaddr); err != nil {
		return err
	}
	return unix.Listen(fd, backlog)
}

// adopt takes a socket for a tunnel's if it listens at the address.
func adopt(file *os.File, address netip.AddrPort) (*listener, error) {
	l := &listener{file: file, address: address}
	err := l.check()
	if err == nil {
		l.inode, err = sockets.Inode(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("taking the socket of %s: %w", address, err), file.Close())
	}
	return l, nil
}

// check also has the socket never wait: stunnel expects that of it.
func (l *listener) check() error {
	fd := int(l.file.Fd())
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	if listening == 0 || addressOf(bound) != l.address {
		return fmt.Errorf("it does not listen there")
	}
	return unix.SetNonblock(fd, true)
}

// shutdown takes the socket out of listening for all who hold it, stunnel and the agent, so that
// connections go to whoever else listens there. Closing alone would leave it to them, and reset
// those that come between.
func (l *listener) shutdown() error {
	err := unix.Shutdown(int(l.file.Fd()), unix.SHUT_RD)
	return errors.Join(err, l.file.Close())
}

func socketAddress(address netip.AddrPort) (family int, sockaddr unix.Sockaddr) {
	ip, port := address.Addr().Unmap(), int(address.Port())
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: ip.As16()}
}

func addressOf(sockaddr unix.Sockaddr) netip.AddrPort {
	switch a := sockaddr.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
