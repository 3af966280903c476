package supervise

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// portFree says whether nothing listens at an address. It binds a socket there as stunnel will,
// but never listens, so that it takes the port from nobody: not from another supervisor's
// stunnel, whose own bind in this moment succeeds, too. What cannot be found out is left to
// stunnel.
func portFree(address netip.AddrPort) bool {
	family, sockaddr := socketAddress(address)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return true
	}
	return !errors.Is(unix.Bind(fd, sockaddr), unix.EADDRINUSE)
}

func socketAddress(address netip.AddrPort) (family int, sockaddr unix.Sockaddr) {
	ip, port := address.Addr().Unmap(), int(address.Port())
	if ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: ip.As16()}
}
