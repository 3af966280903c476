package machine

import (
	"math"
	"sync"
	"time"

	"github.com/klauspost/cpuid/v2"
)

// counterFrequency is that of the processor's time stamp counter in kHz, 0 if the counter cannot be
// read. Emulated processors count alike. Left to themselves, they measure it at boot, with timers
// that a busy host serves late: one that took 442 MHz for 2596 had a clock six times too fast.
var counterFrequency = sync.OnceValue(measureCounter)

func measureCounter() int64 {
	begin := readCounter()
	<-time.After(200 * time.Millisecond)
	end := readCounter()
	return (end.count - begin.count) * time.Millisecond.Nanoseconds() / end.at.Sub(begin.at).Nanoseconds()
}

// reading is what the counter showed at a time.
type reading struct {
	at    time.Time
	count int64
}

// readCounter reads it often, and trusts the time that it knows best: others may have had the
// processor between the counter's reading and the clock's.
func readCounter() (best reading) {
	for shortest, n := time.Duration(math.MaxInt64), 0; n < 1000; n++ {
		before := time.Now()
		count := cpuid.CPU.RTCounter()
		if took := time.Since(before); took < shortest {
			shortest, best = took, reading{before.Add(took / 2), int64(count)} //nolint:gosec // overflows after a century
		}
	}
	return best
}
