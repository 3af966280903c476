package usage

import (
	"cmp"
	"context"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
	"gnuthought.com/efs-stunnel/pkg/worker/ledger"
	"gnuthought.com/efs-stunnel/pkg/worker/treewalk"
)

// Options say how volumes are counted.
type Options struct {
	// After is the path of the last volume that an earlier survey has counted, or "".
	After string
	// Found is called with what a volume uses, in the order of the volumes' paths. Its error ends the survey.
	Found func(operations.Usage) error
	// VolumeTime is how long one volume may take. After that, what was counted so far is found.
	VolumeTime time.Duration // 0 is defaultVolumeTime
	// Workers is how many requests are under way at once, and Rate how many begin in a second.
	Workers, Rate int // 0 is defaultWorkers and defaultRate
}

const (
	// defaultWorkers hide the round trips of an NFS server from each other. With more, the memory
	// of a survey could exceed its limit: see pieceAt.
	defaultWorkers = 24
	// defaultRate is a seventh of what EFS serves in its slowest mode.
	defaultRate = 5000

	defaultVolumeTime = time.Hour
	// countedAhead bounds how many volumes are counted while the one before them takes long.
	countedAhead = 1024
)

// Survey counts what each volume of the ledger uses. It reads only, and takes no lock. It can be ended at any
// time: the next survey goes on after the last volume that was found.
func Survey(ctx context.Context, f *fsroot.FileSystem, o Options) error {
	if f.State == nil {
		return nil // no volume was ever made here
	}
	job := ctx
	ctx, cancel := context.WithCancelCause(job)
	defer cancel(nil)
	o.VolumeTime = cmp.Or(o.VolumeTime, defaultVolumeTime)
	s := &survey{
		options: o, cancel: cancel,
		Walkers: treewalk.NewWalkers(f, cmp.Or(o.Workers, defaultWorkers), cmp.Or(o.Rate, defaultRate)),
	}
	counted := make(chan *count, countedAhead)
	var walking sync.WaitGroup
	walking.Go(func() {
		defer close(counted)
		s.countAll(ctx, counted)
	})
	for c := range counted {
		<-c.done
		if ctx.Err() != nil {
			continue // it may lack something
		}
		if err := o.Found(c.usage()); err != nil {
			cancel(err)
		}
	}
	walking.Wait()
	if job.Err() != nil {
		return &fsroot.StopError{Cause: context.Cause(job)}
	}
	return context.Cause(ctx)
}

// survey is one run.
type survey struct {
	*treewalk.Walkers
	options Options
	cancel  context.CancelCauseFunc
}

// countAll begins to count each volume when a walker is free for it.
func (s *survey) countAll(ctx context.Context, counted chan<- *count) {
	walk := ledger.OwnedWalk{After: s.options.After, Workers: cmp.Or(s.options.Workers, defaultWorkers), Request: s.Request}
	err := walk.Each(ctx, s.System, func(p string) bool {
		if ctx.Err() != nil {
			return false
		}
		c := &count{survey: s, path: p, done: make(chan struct{})}
		s.Next(func() { c.run(ctx) })
		counted <- c
		return true
	})
	if err != nil && ctx.Err() == nil {
		s.cancel(err)
	}
}
