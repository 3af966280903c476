package supervise

import (
	"maps"
	"net/netip"
	"os"
)

// takeKept gives the socket that an earlier supervisor of this pod had open at an address, nil if
// there is none that listens.
func (s *supervisor) takeKept(address netip.AddrPort) *listener {
	file, ok := s.kept[address]
	if !ok {
		return nil
	}
	delete(s.kept, address)
	l, err := adopt(file, address)
	if err != nil {
		s.options.Log.Warn("socket of an earlier supervisor is of no use", "err", err)
		return nil
	}
	return l
}

// park has the agent keep copies of the sockets that are open, and no others. What an earlier
// supervisor left and no tunnel has taken is closed.
func (s *supervisor) park() {
	for _, file := range s.kept {
		// It listens for nobody; the error would say no more.
		_ = file.Close()
	}
	s.kept = nil
	open := map[netip.AddrPort]*os.File{}
	for _, t := range s.tunnels {
		if t.socket != nil {
			open[t.socket.address] = t.socket.file
		}
	}
	if !maps.Equal(open, s.parked) {
		s.parked = open
		s.store.Keep(open)
	}
}
