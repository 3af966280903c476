package efsapi

import (
	"maps"
	"sync"
)

// Counters count calls by operation and result: "OK", "Hung" or an error code. The zero value is
// ready for use; safe for concurrent use.
type Counters struct {
	mu    sync.Mutex
	calls map[string]map[string]int // guarded by mu
}

func (c *Counters) add(operation, result string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]map[string]int{}
	}
	if c.calls[operation] == nil {
		c.calls[operation] = map[string]int{}
	}
	c.calls[operation][result]++
}

// Snapshot returns the count of calls by operation and result until now.
func (c *Counters) Snapshot() map[string]map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := make(map[string]map[string]int, len(c.calls))
	for operation, results := range c.calls {
		calls[operation] = maps.Clone(results)
	}
	return calls
}
