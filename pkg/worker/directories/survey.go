package directories

import (
	"cmp"
	"context"
	"sync"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
)

// SurveyOptions say how volumes are counted.
type SurveyOptions struct {
	// After is the path of the last volume that an earlier survey has counted, or "".
	After string
	// Found is called with what a volume uses, in the order of the volumes' paths. Its error ends the survey.
	Found func(operations.Usage) error
	// VolumeTime is how long one volume may take. After that, what was counted so far is found.
	VolumeTime time.Duration // 0 is defaultVolumeTime
	// Workers is how many requests are under way at once, and Rate how many begin in a second.
	Workers, Rate int // 0 is DefaultSurveyWorkers and DefaultSurveyRate
}

const (
	// DefaultSurveyWorkers hide the round trips of an NFS server from each other. With more, the memory
	// of a survey could exceed its limit: see pieceAt.
	DefaultSurveyWorkers = 24
	// DefaultSurveyRate is a seventh of what EFS serves in its slowest mode.
	DefaultSurveyRate = 5000

	defaultVolumeTime = time.Hour
	// countedAhead bounds how many volumes are counted while the one before them takes long.
	countedAhead = 1024
)

// Survey counts what each volume of the ledger uses. It reads only, and takes no lock. It can be ended at any
// time: the next survey goes on after the last volume that was found.
func (f *FileSystem) Survey(ctx context.Context, o SurveyOptions) error {
	if f.state == nil {
		return nil // no volume was ever made here
	}
	job := ctx
	ctx, cancel := context.WithCancelCause(job)
	defer cancel(nil)
	o.VolumeTime = cmp.Or(o.VolumeTime, defaultVolumeTime)
	s := &survey{
		fs: f, options: o, cancel: cancel,
		tokens: make(chan struct{}, cmp.Or(o.Workers, DefaultSurveyWorkers)),
		pace:   newPace(cmp.Or(o.Rate, DefaultSurveyRate)),
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
		return &stopError{context.Cause(job)}
	}
	return context.Cause(ctx)
}

// survey is one run. As many goroutines walk directories as there are tokens.
type survey struct {
	fs      *FileSystem
	options SurveyOptions
	cancel  context.CancelCauseFunc
	tokens  chan struct{}
	pace    pace
}

// countAll begins to count each volume when a goroutine is free for it.
func (s *survey) countAll(ctx context.Context, counted chan<- *count) {
	err := s.eachOwned(ctx, func(p string) bool {
		c := &count{survey: s, path: p, done: make(chan struct{})}
		select {
		case s.tokens <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		go func() {
			defer func() { <-s.tokens }()
			c.run(ctx)
		}()
		counted <- c
		return true
	})
	if err != nil && ctx.Err() == nil {
		s.cancel(err)
	}
}

// try has a free goroutine do something, if there is one.
func (s *survey) try(do func()) bool {
	select {
	case s.tokens <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-s.tokens }()
		do()
	}()
	return true
}

// request waits until n more requests to the server may begin.
func (s *survey) request(ctx context.Context, n int) {
	s.pace.wait(ctx, n)
	s.fs.hookRequest(n)
}

// atServer is how long an answer takes at least that comes from the server. A client that has an entry's
// attributes from reading the directory answers in microseconds.
const atServer = 100 * time.Microsecond

// mayRequest does what is a request to the server unless the client knows the answer. Only a request counts.
func (s *survey) mayRequest(ctx context.Context, do func()) {
	began := time.Now()
	s.fs.hookRequest(1)
	do()
	if time.Since(began) >= atServer {
		s.pace.wait(ctx, 1)
	}
}

// pace bounds the requests in a second.
type pace struct {
	interval time.Duration

	mu   sync.Mutex
	next time.Time // guarded by mu; when the next request may begin
}

// newPace is one of rate requests in a second.
func newPace(rate int) pace { return pace{interval: time.Second / time.Duration(rate)} }

// paceBurst is what may begin at once after a pause.
const paceBurst = 50 * time.Millisecond

func (p *pace) wait(ctx context.Context, n int) {
	p.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-paceBurst); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(time.Duration(n) * p.interval)
	wait := p.next.Sub(now)
	p.mu.Unlock()
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
