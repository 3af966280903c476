package topology

import (
	"context"
	"net"
	"net/netip"
)

// HasRoute reports whether this network namespace has a route to any of the addresses. It connects
// datagram sockets, which sends nothing, and stops at the first route.
func HasRoute(addresses ...netip.Addr) bool {
	for _, address := range addresses {
		// The port is not used. Nothing waits that a context could end.
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "udp", netip.AddrPortFrom(address, 9).String())
		if err == nil {
			conn.Close()
			return true
		}
	}
	return false
}
