package machine

import (
	"math"
	"sync"
	"time"
)

// counterFrequency is the frequency of the processor's time stamp counter in kHz. Emulated processors have
// the same counter. Their kernels would measure it at boot with timers
// that are late on a busy host: one measured 442 MHz for 2596, and its clock was six times too fast.
var counterFrequency = sync.OnceValue(measureCounter)

func measureCounter() int64 {
	begin := readCounter()
	<-time.After(200 * time.Millisecond)
	end := readCounter()
	return (end.count - begin.count) * time.Millisecond.Nanoseconds() / end.at.Sub(begin.at).Nanoseconds()
}

// reading is the counter's value at a time.
type reading struct {
	at    time.Time
	count int64
}

// readCounter reads counter and clock many times, and returns the pair that was read fastest: between the
// two reads, the processor may have run other threads.
func readCounter() (best reading) {
	for shortest, n := time.Duration(math.MaxInt64), 0; n < 1000; n++ {
		before := time.Now()
		count := readTimeStampCounter()
		if took := time.Since(before); took < shortest {
			shortest, best = took, reading{before.Add(took / 2), int64(count)} //nolint:gosec // overflows after a century
		}
	}
	return best
}

// readTimeStampCounter executes the instruction RDTSC. RDTSCP, which waits for earlier instructions, is not in every
// virtual machine, and readCounter needs no such order.
func readTimeStampCounter() uint64
