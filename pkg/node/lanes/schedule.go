package lanes

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// MaxRequests bounds the requests of a mount that wait for answers. A client of NFS has 64 for each session.
const MaxRequests = 4096

// Errors of Route.
var (
	ErrFull     = errors.New("too many requests wait for their answers")
	errNoLane   = errors.New("there is no lane")
	errNotAsked = errors.New("a reply belongs to no call of the server")
)

// Schedule holds which request waits for its answer on which lane. The zero Schedule has no lanes.
type Schedule struct {
	lanes    []*queue           // in the order in which they were added
	requests map[uint32]request // of the client, by xid
	calls    map[uint32]int     // of the server, by xid: the lane that each came from
}

type queue struct{ lane, waiting int }

type request struct {
	lane int
	at   time.Time
}

// Add adds a lane.
func (s *Schedule) Add(lane int) { s.lanes = append(s.lanes, &queue{lane: lane}) }

// Remove removes a lane, if it is there, and reports whether anything waited on it.
func (s *Schedule) Remove(lane int) (wasBusy bool) {
	q := s.queue(lane)
	if q == nil {
		return false
	}
	s.lanes = slices.DeleteFunc(s.lanes, func(other *queue) bool { return other == q })
	maps.DeleteFunc(s.requests, func(_ uint32, sent request) bool { return sent.lane == lane })
	maps.DeleteFunc(s.calls, func(_ uint32, from int) bool { return from == lane })
	return q.waiting > 0
}

// Len returns the number of lanes.
func (s *Schedule) Len() int { return len(s.lanes) }

// Waiting returns the number of requests that wait for answers.
func (s *Schedule) Waiting() int { return len(s.requests) }

func (s *Schedule) queue(lane int) *queue {
	for _, q := range s.lanes {
		if q.lane == lane {
			return q
		}
	}
	return nil
}

// Route returns the lane for a record of the client.
//
//	record                                      lane
//	a call                                      the one on which fewest wait, the oldest of several
//	a call that was sent before, not answered   the same again
//	a reply to a call of the server             the one that the call came from
func (s *Schedule) Route(h Header, now time.Time) (int, error) {
	if h.Reply {
		return s.routeReply(h.XID)
	}
	if sent, ok := s.requests[h.XID]; ok {
		return sent.lane, nil
	}
	if len(s.lanes) == 0 {
		return 0, errNoLane
	}
	if len(s.requests) >= MaxRequests {
		return 0, ErrFull
	}
	q := slices.MinFunc(s.lanes, func(a, b *queue) int { return a.waiting - b.waiting })
	q.waiting++
	if s.requests == nil {
		s.requests = map[uint32]request{}
	}
	s.requests[h.XID] = request{q.lane, now}
	return q.lane, nil
}

func (s *Schedule) routeReply(xid uint32) (int, error) {
	lane, ok := s.calls[xid]
	if !ok {
		return 0, errNotAsked
	}
	delete(s.calls, xid)
	s.queue(lane).waiting--
	return lane, nil
}

// Received records a record that came from a lane. For the answer to a request, it returns how long the
// request waited.
func (s *Schedule) Received(lane int, h Header, now time.Time) (waited time.Duration, isAnswer bool) {
	q := s.queue(lane)
	if q == nil {
		return 0, false
	}
	if !h.Reply {
		s.receivedCall(q, h.XID)
		return 0, false
	}
	sent, ok := s.requests[h.XID]
	if !ok || sent.lane != lane {
		return 0, false // the client ignores it
	}
	delete(s.requests, h.XID)
	q.waiting--
	return now.Sub(sent.at), true
}

// receivedCall records a call of the server. The lane is busy until its reply.
func (s *Schedule) receivedCall(q *queue, xid uint32) {
	if _, ok := s.calls[xid]; ok || len(s.calls) >= MaxRequests {
		return
	}
	if s.calls == nil {
		s.calls = map[uint32]int{}
	}
	s.calls[xid] = q.lane
	q.waiting++
}

// Spare returns a lane that can be dropped: the newest on which nothing waits, never the only one.
func (s *Schedule) Spare() (lane int, ok bool) {
	for _, q := range slices.Backward(s.lanes) {
		if q.waiting == 0 && len(s.lanes) > 1 {
			return q.lane, true
		}
	}
	return 0, false
}
