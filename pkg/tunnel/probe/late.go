package probe

import "time"

// A process that does not get processor time, or is stopped for a while, finds servers silent
// that are not. These are the times from which on a round says nothing.
const (
	// maxLateness is half of the shortest timeout: whoever was asked had at least the other half.
	maxLateness = 500 * time.Millisecond
	// maxConnect is for a connect to the node's own address, which takes microseconds.
	maxConnect = 200 * time.Millisecond

	pulseInterval = 100 * time.Millisecond
)

// lateness does something, and says by how much a timer beside it was late at most.
func lateness(do func()) time.Duration {
	done, worst := make(chan struct{}), make(chan time.Duration, 1)
	go func() { worst <- pulse(done) }()
	do()
	close(done)
	return <-worst
}

// pulse lets timers of a short interval expire, one after the other, and measures how late this
// goroutine is woken.
func pulse(done <-chan struct{}) (worst time.Duration) {
	for {
		due := time.Now().Add(pulseInterval)
		timer := time.NewTimer(pulseInterval)
		select {
		case <-done:
			timer.Stop()
			return max(worst, time.Since(due))
		case <-timer.C:
			worst = max(worst, time.Since(due))
		}
	}
}
