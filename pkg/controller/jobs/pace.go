package jobs

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// lookDelay lets what happens together be one look. A lone claim hardly notices.
	lookDelay = 20 * time.Millisecond
	// restFactor is how many times as long as a sync takes is the rest before the next, so that the
	// syncs of a file system take a twentieth of a processor at most however many claims wait.
	restFactor = 20
	// maxCost is more than a sync costs, as claimsPerSync bounds that. What took longer has waited
	// for a processor.
	maxCost = 100 * time.Millisecond
)

// pace spaces the syncs of file systems. A sync costs as much as there are claims that wait, up to
// claimsPerSync, and each of them asks for one: without a rest between two, a burst would cost its
// square.
type pace struct {
	mu   sync.Mutex
	cost map[string]time.Duration // guarded by mu; of the last sync of each file system
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
	return max(lookDelay, restFactor*min(p.cost[id], maxCost))
}

// known are the file systems that were synced.
func (p *pace) known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.cost))
}

func (p *pace) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.cost, id)
}
