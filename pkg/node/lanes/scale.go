package lanes

import "time"

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
