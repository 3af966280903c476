package supervise

import (
	"maps"
	"net/netip"
	"os"
)

// takeInherited returns the listener of an earlier supervisor of this pod at an address, nil if
// there is none.
func (s *supervisor) takeInherited(address netip.AddrPort) *listener {
	file, ok := s.inherited[address]
	if !ok {
		return nil
	}
	delete(s.inherited, address)
	l, err := adopt(file, address)
	if err != nil {
		s.options.Log.Warn("taking over a socket of an earlier supervisor failed", "err", err)
		return nil
	}
	return l
}

// storeSockets gives the agent copies of the open sockets, and closes the inherited sockets that no
// tunnel has taken over.
func (s *supervisor) storeSockets() {
	for _, file := range s.inherited {
		// No data can be lost on a listening socket.
		_ = file.Close()
	}
	s.inherited = nil
	open := map[netip.AddrPort]*os.File{}
	for _, t := range s.tunnels {
		if t.socket != nil {
			open[t.socket.address] = t.socket.file
		}
	}
	if !maps.Equal(open, s.stored) {
		s.stored = open
		s.store.Store(open)
	}
}
