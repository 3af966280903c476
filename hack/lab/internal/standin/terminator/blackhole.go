package terminator

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// setBlackHole makes the kernel throw away every packet that comes for a
// socket, before TCP sees it, or ends that. A listener answers no SYN then; a
// connection acknowledges nothing and is not reset either. Unlike a black-hole
// route it leaves ARP alone, as a dead machine behind a router does, it works
// for clients on the same machine, and it cannot outlive the process.
func setBlackHole(socket syscall.Conn, on bool) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("getting at a socket: %w", err)
	}
	var optionErr error
	err = raw.Control(func(fd uintptr) { optionErr = filterSocket(int(fd), on) })
	if err != nil {
		return fmt.Errorf("getting at a socket: %w", err)
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
