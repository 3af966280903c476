package jobs

import (
	"sync"
	"time"
)

const (
	// lookDelay lets what happens together be one look. A lone claim hardly notices.
	lookDelay = 20 * time.Millisecond
	// restFactor is how many times as long as a look takes is the rest before the next, so that
	// looking takes a twentieth of a processor at most however many claims wait.
	restFactor = 20
	maxRest    = 500 * time.Millisecond
)

// pace spaces the looks at file systems. A look costs as much as there are claims that wait, and
// each of them asks for one: without a rest between two, a burst would cost its square.
type pace struct {
	mu   sync.Mutex
	cost map[string]time.Duration // guarded by mu; of the last look at each file system
}

func newPace() *pace { return &pace{cost: map[string]time.Duration{}} }

// took notes what the last look at a file system took.
func (p *pace) took(id string, cost time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cost[id] = cost
}

// rest is how long to wait before the next.
func (p *pace) rest(id string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(lookDelay, restFactor*p.cost[id]), maxRest)
}
