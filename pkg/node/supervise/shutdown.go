package supervise

import (
	"slices"
	"time"
)

const (
	clientsInterval = 5 * time.Second // the time between two counts of client connections
	// handOverInterval is the time between two checks for another supervisor that listens: both
	// receive new connections until this one stops listening.
	handOverInterval = 100 * time.Millisecond
)

// checkClients updates which tunnels are in use, when a check is due.
func (s *supervisor) checkClients(now time.Time) {
	if !now.Before(s.clientsAt) {
		s.countClients(now)
	}
}

// countClients updates which tunnels are in use, at most once for each time.
func (s *supervisor) countClients(now time.Time) {
	next := now.Add(clientsInterval)
	if s.clientsAt.Equal(next) {
		return
	}
	s.clientsAt = next
	clients, err := s.options.Clients()
	if err != nil && !s.clientsUnknown {
		s.options.Log.Warn("listing client connections failed; idle stunnel processes are not stopped", "err", err)
	}
	s.clientsUnknown = err != nil
	for _, t := range s.tunnels {
		if t.socket != nil {
			t.updateIdle(clients[t.socket.address], err == nil, now)
		}
	}
}

// closeTunnels closes, during the shutdown, each tunnel that another supervisor listens for or that
// has no clients, and all of them when DrainTimeout has passed. A tunnel whose clients are unknown counts
// as used. closeTunnels closes the port before stunnel stops, so that clients reconnect to the other
// supervisor.
func (s *supervisor) closeTunnels(now time.Time) {
	if !s.closing || now.Before(s.closeAt) {
		return
	}
	s.closeAt = now.Add(handOverInterval)
	clients, err := s.options.Clients()
	unknown := err != nil
	listeners, _ := s.options.Listening() // on an error, no successor counts as known
	over := !now.Before(s.closeBy)
	for _, t := range s.tunnels {
		if t.closing || t.socket == nil {
			t.close()
			continue
		}
		address := t.socket.address
		isOther := func(inode uint32) bool { return inode != t.socket.inode }
		hasSuccessor := slices.ContainsFunc(listeners[address], isOther)
		if hasSuccessor {
			s.logFor(t).Info("tunnel handed over to another supervisor", "port", address.Port())
		}
		if over || hasSuccessor || !unknown && clients[address] == 0 {
			s.closeSocket(t)
			t.close()
		}
	}
}
