package lanes_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/lanes"
)

func partitionOf(i int) *lanes.Partition { return &lanes.Partition{byte(i)} }

// TestSearchesFindThePartition: 1,000 searches among one to five partitions keep no wrong connection and not
// one too many, and give up only where few connections of 120 lead to the partition.
func TestSearchesFindThePartition(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	opened, found := 0, 0
	for i := range 1000 {
		partitions, want := 1+i%5, 1+i%4
		home, kept := partitionOf(random.IntN(partitions)), 0
		s, now := lanes.NewSearch(home, want, epoch), epoch
		for {
			n := s.Open(now)
			if n > 3 {
				t.Fatalf("search %d opens %d connections at once", i, n)
			}
			opened += n
			if s.Opening() == 0 {
				break
			}
			answer := lanes.Answer{Partition: partitionOf(random.IntN(partitions))}
			switch fails := random.IntN(10) == 0; {
			case fails:
				s.Failed()
			case s.Opened(answer):
				if *answer.Partition != *home {
					t.Fatalf("search %d kept a connection of another partition", i)
				}
				kept++
			}
			now = now.Add(time.Millisecond)
		}
		if kept > want || s.Found() != (kept == want) {
			t.Fatalf("search %d kept %d of %d", i, kept, want)
		}
		if s.Found() {
			found++
		}
	}
	if found != 1000 {
		t.Errorf("%d of 1000 searches found enough, with %d connections", found, opened)
	}
}

func TestSearchesEnd(t *testing.T) {
	elsewhere := lanes.Answer{Partition: partitionOf(2)}
	for name, tt := range map[string]struct {
		partition *lanes.Partition
		step      time.Duration
		answer    func(*lanes.Search) bool
		tries     int
		found     bool
	}{
		"no connection of the partition": {partitionOf(1), 0, func(s *lanes.Search) bool { return s.Opened(elsewhere) }, 120, false},
		"no answer has a partition":      {partitionOf(1), 0, func(s *lanes.Search) bool { return s.Opened(lanes.Answer{}) }, 120, false},
		"no connection at all":           {partitionOf(1), 0, func(s *lanes.Search) bool { s.Failed(); return false }, 120, false},
		"slow connections":               {partitionOf(1), 5 * time.Second, func(s *lanes.Search) bool { return s.Opened(elsewhere) }, 5, false},
		"without partitions":             {nil, 0, func(s *lanes.Search) bool { return s.Opened(lanes.Answer{}) }, 4, true},
	} {
		s, tries := lanes.NewSearch(tt.partition, 4, epoch), 0
		for now := epoch; ; now = now.Add(tt.step) {
			tries += s.Open(now)
			if s.Opening() == 0 {
				break
			}
			tt.answer(s)
		}
		if tries != tt.tries || s.Found() != tt.found {
			t.Errorf("%s: %d tries, found %v", name, tries, s.Found())
		}
	}
}

func TestScaler(t *testing.T) {
	const mib = 1 << 20
	efs := lanes.Answer{Partition: partitionOf(1)}
	for name, tt := range map[string]struct {
		answer lanes.Answer
		bytes  int64
		lanes  int
		want   []int // steps of samples 1 to 3, 60 and 61
	}{
		"pinned and busy":        {lanes.Answer{}, 32 * mib, 1, []int{0, 0, 4, 4, 4}},
		"pinned, not quite busy": {lanes.Answer{}, 31 * mib, 1, []int{0, 0, 0, 0, 0}},
		"busy":                   {efs, 150 * mib, 1, []int{0, 0, 4, 4, 4}},
		"not quite busy":         {efs, 149 * mib, 1, []int{0, 0, 0, 0, 0}},
		"the server's number":    {lanes.Answer{Partition: partitionOf(1), Lanes: 5, BytesPerSecond: mib}, mib, 2, []int{0, 0, 3, 3, 3}},
		"the server's is higher": {lanes.Answer{Partition: partitionOf(1), Lanes: 5, BytesPerSecond: 300 * mib}, 150 * mib, 2, []int{0, 0, 3, 3, 3}},
		"the server wants fewer": {lanes.Answer{Partition: partitionOf(1), Lanes: 2}, 150 * mib, 1, []int{0, 0, 1, 1, 1}},
		"the server wants one":   {lanes.Answer{Partition: partitionOf(1), Lanes: 1}, 150 * mib, 1, []int{0, 0, 0, 0, 0}},
		"nonsense of the server": {lanes.Answer{Partition: partitionOf(1), Lanes: -1, BytesPerSecond: -1}, 150 * mib, 1, []int{0, 0, 4, 4, 4}},
		"all there are":          {efs, 150 * mib, 5, []int{0, 0, 0, 0, 0}},
		"calm":                   {efs, 37 * mib, 3, []int{0, 0, 0, -1, -1}},
		"calm, with one lane":    {efs, 0, 1, []int{0, 0, 0, 0, 0}},
		"neither busy nor calm":  {efs, 38 * mib, 3, []int{0, 0, 0, 0, 0}},
	} {
		s := lanes.NewScaler(5, tt.answer)
		var got []int
		for i := range 61 {
			step := s.Sample(epoch, tt.bytes, tt.lanes)
			if i < 3 || i > 58 {
				got = append(got, step)
			}
		}
		for i, want := range tt.want {
			if got[i] != want {
				t.Errorf("%s: got %v, want %v", name, got, tt.want)
				break
			}
		}
	}
}

func TestScalerRestsAfterASearch(t *testing.T) {
	s := lanes.NewScaler(5, lanes.Answer{BytesPerSecond: 1})
	s.Rest(epoch.Add(lanes.SearchPause))
	for range 10 {
		if step := s.Sample(epoch, 1, 1); step != 0 {
			t.Fatalf("it takes the step %d while it rests", step)
		}
	}
	if step := s.Sample(epoch.Add(lanes.SearchPause), 1, 1); step != 4 {
		t.Errorf("it takes the step %d after its rest", step)
	}
}
