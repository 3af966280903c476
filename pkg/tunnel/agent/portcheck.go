package agent

import (
	"errors"
	"net/netip"
	"syscall"
)

// bindable says whether a process could listen at the address now. It binds without listening, which
// neither clients nor other listeners notice.
func bindable(address netip.AddrPort) bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // the supervisor will report the error
	}
	defer func() { _ = syscall.Close(fd) }() // it holds nothing that could be lost
	// As stunnel does: connections that are ending do not count.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return true
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()})
	return !errors.Is(err, syscall.EADDRINUSE)
}
