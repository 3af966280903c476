package lanes

import "time"

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
