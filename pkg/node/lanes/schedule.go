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

const (
	// SampleInterval is the time between two samples of a Scaler.
	SampleInterval = time.Second
	// busySamples is for how many samples a connection must be busy before lanes are added.
	busySamples = 3
	// calmSamples is for how many samples a mount must need no more than one lane before one is dropped.
	calmSamples = 60
	// busyRate is the rate in bytes per second from which a mount has more lanes, if the server names no
	// lower one: a connection is one thread of stunnel, which makes 400 MB/s at most. Where no partition has
	// to be searched, lanes cost little, and pinnedRate holds.
	busyRate   = 150 << 20
	pinnedRate = 32 << 20
)

// Scaler decides when lanes are added and dropped.
//
//	rate                                    step
//	at least the server's, for 3 samples    as many lanes as wanted
//	below a quarter of it, for 60 samples   one lane less, and again with each sample
//	between                                 none
type Scaler struct {
	want       int
	threshold  int64
	busy, calm int
	restUntil  time.Time
}

// NewScaler returns a Scaler for a number of lanes, of which a server with partitions named its limits in its
// answer. The zero Answer is that of one without.
func NewScaler(want int, a Answer) Scaler {
	s := Scaler{want: want, threshold: busyRate}
	if a.Partition == nil {
		s.threshold = pinnedRate
	}
	if a.Lanes > 0 {
		s.want = min(want, a.Lanes)
	}
	if a.BytesPerSecond > 0 {
		s.threshold = min(s.threshold, a.BytesPerSecond)
	}
	return s
}

// Rest keeps the number of lanes until a time, after a search that did not find enough.
func (s *Scaler) Rest(until time.Time) { s.restUntil = until }

// Sample takes the bytes of one SampleInterval, and returns how many lanes to add, or -1 to drop one.
func (s *Scaler) Sample(now time.Time, bytes int64, lanes int) int {
	s.busy, s.calm = count(s.busy, bytes >= s.threshold), count(s.calm, bytes < s.threshold/4)
	switch {
	case s.busy >= busySamples && lanes < s.want && !now.Before(s.restUntil):
		return s.want - lanes
	case s.calm >= calmSamples && lanes > 1:
		return -1
	}
	return 0
}

// count counts how often in a row something is so.
func count(before int, is bool) int {
	if is {
		return before + 1
	}
	return 0
}

// Limits of a search. They are those of Amazon's own client.
const (
	maxTries    = 120
	maxOpening  = 3 // connections that are opened at once
	searchTime  = 15 * time.Second
	SearchPause = 5 * time.Minute // the rest after a search that found too few
)

// Search opens connections until enough lead to one partition.
//
//	opened                 step
//	of the partition       keep it, until there are enough
//	of another partition   close it, open another one
//	failed                 open another one
//
// It ends with enough connections, after maxTries, or after searchTime.
type Search struct {
	partition   *Partition // nil: every connection counts
	want        int
	until       time.Time
	tries, kept int
	opening     int
}

// NewSearch searches a number of connections.
func NewSearch(partition *Partition, want int, now time.Time) *Search {
	return &Search{partition: partition, want: want, until: now.Add(searchTime)}
}

// Open returns how many connections to open now, and counts them as being opened.
func (s *Search) Open(now time.Time) int {
	if !now.Before(s.until) {
		return 0
	}
	n := max(0, min(maxOpening-s.opening, maxTries-s.tries, s.want-s.kept-s.opening+s.spare()))
	s.tries += n
	s.opening += n
	return n
}

// spare is how many of the opening connections may lead elsewhere.
func (s *Search) spare() int {
	if s.partition == nil || s.kept == s.want {
		return 0
	}
	return maxOpening
}

// Opened reports whether to keep a connection of which the server gave the answer.
func (s *Search) Opened(a Answer) bool {
	s.opening--
	keep := s.kept < s.want && (s.partition == nil || a.Partition != nil && *a.Partition == *s.partition)
	if keep {
		s.kept++
	}
	return keep
}

// Failed records a connection that could not be opened.
func (s *Search) Failed() { s.opening-- }

// Opening returns how many connections are being opened: the search has ended when there are none.
func (s *Search) Opening() int { return s.opening }

// Found reports whether there are enough connections.
func (s *Search) Found() bool { return s.kept == s.want }
