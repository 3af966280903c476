package terminator

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// setBlackHole makes the kernel drop all packets to a socket before TCP sees them, or stops that.
// Meanwhile a listener answers no SYN, and a connection acknowledges nothing and is not reset. Unlike
// a black-hole route, this leaves ARP alone, as a dead machine behind a router does, works for clients
// on the same machine, and ends with the process.
func setBlackHole(socket syscall.Conn, on bool) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("accessing a socket: %w", err)
	}
	var optionErr error
	err = raw.Control(func(fd uintptr) { optionErr = filterSocket(int(fd), on) })
	if err != nil {
		return fmt.Errorf("accessing a socket: %w", err)
	}
	return optionErr
}

func filterSocket(fd int, on bool) error {
	if on {
		nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}} // keep 0 bytes of each packet
		program := unix.SockFprog{Len: uint16(len(nothing)), Filter: &nothing[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
			return fmt.Errorf("attaching a packet filter: %w", err)
		}
		return nil
	}
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	if err != nil && !errors.Is(err, unix.ENOENT) { // no filter is attached
		return fmt.Errorf("detaching a packet filter: %w", err)
	}
	return nil
}
