package supervise

import (
	"slices"
	"time"
)

const (
	// usesInterval is how often the kernel is asked who is connected.
	usesInterval = 5 * time.Second
	// handOverPoll is how often it is asked whether a successor listens: both share new
	// connections meanwhile.
	handOverPoll = 100 * time.Millisecond
)

// lookAtUses notes which tunnels are in use, when it is time to.
func (s *supervisor) lookAtUses(now time.Time) {
	if now.Before(s.usesAt) {
		return
	}
	s.usesAt = now.Add(usesInterval)
	uses, err := s.options.Clients()
	s.logUnknown(err)
	for _, t := range s.tunnels {
		if t.socket != nil {
			t.used(uses[t.socket.address], err == nil, now)
		}
	}
}

// logUnknown says once that the kernel does not tell: processes do not rest then, and nobody is
// served on after the end.
func (s *supervisor) logUnknown(err error) {
	if err != nil && !s.unknown {
		s.options.Log.Warn("connections of this node cannot be seen; stunnel processes run on", "err", err)
	}
	s.unknown = err != nil
}

// close ends each tunnel that nobody needs here any more: because a successor listens on its port,
// or nobody is connected to it, or the time is over.
func (s *supervisor) close(now time.Time) {
	if !s.closing || now.Before(s.closeAt) {
		return
	}
	s.closeAt = now.Add(handOverPoll)
	uses, err := s.options.Clients()
	listeners, listenErr := s.options.Listening()
	over := err != nil || listenErr != nil || !now.Before(s.closeBy)
	for _, t := range s.tunnels {
		if t.leaving || t.socket == nil {
			t.leave()
			continue
		}
		address := t.socket.address
		isOther := func(inode uint32) bool { return inode != t.socket.inode }
		succeeded := slices.ContainsFunc(listeners[address], isOther)
		if over || succeeded || uses[address] == 0 {
			s.handOver(t, succeeded)
		}
	}
}

// handOver has new connections go to the successor before those that are open end here.
func (s *supervisor) handOver(t *tunnel, succeeded bool) {
	if succeeded {
		s.logOf(t).Info("tunnel is handed over to the supervisor that listens on its port, too", "port", t.socket.address.Port())
	}
	s.closeSocket(t)
	t.leave()
}
