package jobs

import (
	"sync"
	"time"
)

// paces bound how often the worker of a file system gets a batch. Each batch is a write of the Job, and what
// follows from its operations are more writes, at the rate that the apiserver allows: operations that
// come meanwhile had better go together, and wait for nothing that way. One now and then goes at once.
type paces struct {
	given sync.Map // of time.Time, of the newest batch, by file system; as many as there were
}

// For each operation that was done and has no volume yet, or still has one, the next batch is collected for
// collectForEach, at most for mostCollect and until it has fullBatch operations. A few at once then wait
// for less than a person notices; in a burst so many come together that one request replaces the reads of
// their objects (objects.ManyObjects, caches.IsCurrent).
const (
	collectForEach = 50 * time.Millisecond
	mostCollect    = time.Second
	fullBatch      = 256
)

// wait is how long the next batch of a file system, which would have due operations, has to wait.
func (p *paces) wait(fileSystemID string, unused, due int) time.Duration {
	value, _ := p.given.Load(fileSystemID)
	given, ok := value.(time.Time)
	if !ok || due >= fullBatch {
		return 0
	}
	return max(min(time.Duration(unused)*collectForEach, mostCollect)-time.Since(given), 0)
}

// begin begins to collect the next batch of a file system.
func (p *paces) begin(fileSystemID string) { p.given.Store(fileSystemID, time.Now()) }
