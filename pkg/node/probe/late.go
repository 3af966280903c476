package probe

import "time"

// A process that gets no processor time, or is stopped for a while, sees timeouts of servers that
// answer in time. The result of a round that exceeds one of these limits is discarded.
const (
	// maxLateness is half of the shortest timeout, so that a server had at least the other half.
	maxLateness = 500 * time.Millisecond
	// maxConnect is for connecting to an address of the node itself, which takes microseconds.
	maxConnect = 200 * time.Millisecond

	timerInterval = 100 * time.Millisecond
)

// lateness runs do, and returns by how much timers expired late meanwhile, at most.
func lateness(do func()) time.Duration {
	done, worst := make(chan struct{}), make(chan time.Duration, 1)
	// The process may be stopped before the goroutine runs, so the first timer begins here.
	due := time.Now().Add(timerInterval)
	go func() { worst <- timerLateness(due, done) }()
	do()
	close(done)
	return <-worst
}

// timerLateness runs short timers one after another, and measures how late this goroutine is woken.
func timerLateness(due time.Time, done <-chan struct{}) (worst time.Duration) {
	for {
		timer := time.NewTimer(time.Until(due))
		select {
		case <-done:
			timer.Stop()
			return max(worst, time.Since(due))
		case <-timer.C:
			worst = max(worst, time.Since(due))
		}
		due = time.Now().Add(timerInterval)
	}
}
