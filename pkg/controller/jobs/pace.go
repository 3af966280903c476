package jobs

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// paces bound the batches of each file system's worker. Each batch is a write of the Job, so that in a burst
// those that come meanwhile had better go together; a claim now and then goes at once.
type paces struct {
	byFileSystem sync.Map // of *rate.Limiter; as many as there were file systems
}

const (
	batchesPerSecond = 6
	batchesAtOnce    = 6
)

// wait is how long the next batch of a file system has to wait, 0 if it may begin, which counts.
func (p *paces) wait(fileSystemID string) time.Duration {
	value, _ := p.byFileSystem.LoadOrStore(fileSystemID, rate.NewLimiter(batchesPerSecond, batchesAtOnce))
	limiter, ok := value.(*rate.Limiter)
	if !ok {
		return 0
	}
	reservation := limiter.Reserve()
	wait := reservation.Delay()
	if wait > 0 {
		reservation.Cancel()
	}
	return wait
}
