package fsroot

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// InParallel calls do for 0 to n-1, from several goroutines: over NFS each call waits for round
// trips. It ends early when ctx does.
func InParallel(ctx context.Context, workers, n int, do func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(workers, n) {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				errs[i] = do(i)
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return &StopError{Cause: context.Cause(ctx)}
	}
	return errors.Join(errs...)
}

// DefaultWorkers are how many operations of a batch are done at once: an operation is some twenty round
// trips to the server, one after the other.
const DefaultWorkers = 16

// DefaultSweepWorkers hide the round trips of an NFS server from each other.
const DefaultSweepWorkers = 64
