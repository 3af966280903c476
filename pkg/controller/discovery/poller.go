package discovery

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// poller asks the API, and nobody waits for it.
type poller struct {
	api      API
	interval time.Duration
	now      func() time.Time // by the apiserver's clock
	log      *slog.Logger
	failed   func() // counts
	changed  func() // there are new findings

	kicked chan struct{} // holds one
	asked  chan struct{} // holds one
	wanted chan struct{} // holds one

	mu        sync.Mutex
	findings  findings    // guarded by mu
	questions []string    // guarded by mu
	points    []ports.Key // guarded by mu: access points to describe, in order
}

func newPoller(api API, o Options, failed, changed func()) *poller {
	return &poller{
		api: api, interval: o.PollingInterval, now: o.now, log: o.Log, failed: failed, changed: changed,
		kicked: make(chan struct{}, 1), asked: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
	}
}

// run polls until the context ends. A poll that failed is tried again with backoff, after the interval
// at most.
func (p *poller) run(ctx context.Context) {
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(2*kickInterval), backoff.WithMaxInterval(p.interval), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		begin, interval := time.Now(), wait.Jitter(p.interval, wellknown.PollingJitter)
		if p.poll(ctx) {
			retry.Reset()
		} else {
			interval = min(interval, retry.NextBackOff())
		}
		p.describePoints(ctx)
		p.rest(ctx, begin, interval)
	}
}

// rest waits for the next poll. Questions are answered meanwhile.
func (p *poller) rest(ctx context.Context, begin time.Time, interval time.Duration) {
	regular := begin.Add(interval)
	timer := time.NewTimer(time.Until(regular))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-p.kicked:
			if soon := begin.Add(kickInterval); soon.Before(regular) {
				timer.Reset(time.Until(soon))
			}
		case <-p.asked:
			p.answer(ctx)
		case <-p.wanted:
			p.describePoints(ctx)
		}
	}
}

// poll returns whether the API has answered.
func (p *poller) poll(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	listing, err := p.api.ListFileSystems(limited)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		p.failed()
	}
	p.note(func(f *findings) {
		f.over, f.failure = true, err
		if err == nil {
			f.listing, f.succeeded = listing, p.now()
		}
	})
	return err == nil
}

// answer asks for single file systems, once after each listing.
func (p *poller) answer(ctx context.Context) {
	ids, asOf, before := p.take()
	answers := map[string]answer{} // of those that are still asked for; others are forgotten
	for _, id := range ids {
		if a, ok := before[id]; ok && a.listing.Equal(asOf) {
			answers[id] = a
			continue
		}
		limited, cancel := context.WithTimeout(ctx, pollTimeout)
		exists, err := p.api.FileSystemExists(limited, id)
		cancel()
		if ctx.Err() != nil {
			return
		}
		answers[id] = answer{listing: asOf, gone: !exists}
		if err != nil {
			p.failed()
			answers[id] = answer{listing: asOf, gone: before[id].gone, err: err}
		}
	}
	p.note(func(f *findings) { f.answers = answers })
}

func (p *poller) take() (ids []string, asOf time.Time, before map[string]answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids, p.questions = p.questions, nil
	return ids, p.findings.listing.ReadAt, p.findings.answers
}

// note changes the findings, and tells of it.
func (p *poller) note(change func(*findings)) {
	p.mu.Lock()
	change(&p.findings)
	p.mu.Unlock()
	p.changed()
}

func (p *poller) latest() findings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.findings
}

// kick asks for a poll soon.
func (p *poller) kick() { signal(p.kicked) }

// ask asks whether file systems exist: all of which it must be known, because the answers for
// others are forgotten.
func (p *poller) ask(ids []string) {
	p.mu.Lock()
	p.questions = ids
	p.mu.Unlock()
	signal(p.asked)
}

// signal leaves word for a reader that may be busy.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
