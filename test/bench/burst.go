package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// burst is what many claims at once were like for a contender.
type burst struct {
	Contender  string     `json:"contender"`
	Limits     limits     `json:"limits"`
	Workers    int        `json:"workers"`
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	Create     phase      `json:"create"`
	Delete     phase      `json:"delete"`
}

// phase is one half of their life.
type phase struct {
	Seconds float64 `json:"seconds"` // from the first request until the last claim is served
	Rate    float64 `json:"claimsPerSecond"`
	// Handover is when the last volume was there for the cluster to bind, or was released by
	// the cluster to be deleted.
	Handover float64 `json:"handoverSeconds"`
	Median   float64 `json:"medianSeconds"` // that one claim waited
	P99      float64 `json:"p99Seconds"`
	// Writes and Reads are the contender's, for each claim.
	Writes   float64  `json:"writesPerClaim"`
	Reads    float64  `json:"readsPerClaim"`
	ByMethod requests `json:"requests"`
	Jobs     []job    `json:"mountJobs,omitempty"`
}

// job is a mount Job of a burst; times count from the burst's first request.
type job struct {
	Operations int     `json:"operations"`
	Created    float64 `json:"createdSeconds"`
	Ended      float64 `json:"endedSeconds"`
}

// phaseDeadline is much for the slowest contender.
const phaseDeadline = 30 * time.Minute

// measureBurst makes claims in a world of their own, and deletes them.
func (b *bench) measureBurst(ctx context.Context, c contender) (result burst, err error) {
	result = burst{Contender: c.name, Limits: c.limits, Workers: c.workers, Claims: c.claims}
	profiles := ""
	if c.name == managerName {
		profiles = b.options.profiles
	}
	what := fmt.Sprintf("burst of %d claims, %s with %d/%d requests and %d workers", c.claims, c.name, c.limits.QPS, c.limits.Burst, c.workers)
	err = b.inWorld(ctx, what, c, &result.Conditions, func(ctx context.Context, w *world) error {
		return w.with(ctx, c, func(p *program) error {
			claims := names("burst", c.claims)
			result.Create, err = w.measurePhase(ctx, p, profiles, fmt.Sprintf("create-%d", c.limits.QPS), claims,
				w.createClaim, isBound, func(s story) (from, handover, to time.Time) { return s.created, s.volume, s.bound })
			if err != nil {
				return err
			}
			result.Delete, err = w.measurePhase(ctx, p, profiles, fmt.Sprintf("delete-%d", c.limits.QPS), claims,
				w.deleteClaim, isGone, func(s story) (from, handover, to time.Time) { return s.deleted, s.released, s.gone })
			return err
		})
	})
	b.say("  bound %.0f/s, deleted %.0f/s", result.Create.Rate, result.Delete.Rate)
	return result, err
}

// profileLength is that of a burst, of ours.
const profileLength = 10 * time.Second

// measurePhase asks for something for every claim, and waits until all have it and until
// nothing more is written because of it.
func (w *world) measurePhase(ctx context.Context, p *program, profiles, name string, claims []string,
	ask func(context.Context, string) error, done func(story) bool, span func(story) (from, handover, to time.Time),
) (phase, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("it takes more than %s", phaseDeadline))
	defer cancel()
	before, err := settled(ctx, p.address, pause)
	if err != nil {
		return phase{}, err
	}
	saved := profile(ctx, p.address, profiles, name, profileLength)
	begin := time.Now()
	if err := each(ctx, claims, ask); err != nil {
		return phase{}, err
	}
	stories, err := w.await(ctx, name+" is over", claims, done)
	if err != nil {
		return phase{}, err
	}
	after, err := settled(ctx, p.address, silence)
	if err != nil {
		return phase{}, err
	}
	result := newPhase(stories, span, after.since(before))
	result.Jobs = w.jobsSince(begin)
	return result, saved()
}

func (w *world) jobsSince(begin time.Time) []job {
	var jobs []job
	for _, j := range w.jobsAfter(begin) {
		jobs = append(jobs, job{j.operations, j.created.Sub(begin).Seconds(), j.ended.Sub(begin).Seconds()})
	}
	return jobs
}

func newPhase(stories []story, span func(story) (from, handover, to time.Time), asked requests) phase {
	var begin, handover, end time.Time
	var waits []time.Duration
	for _, s := range stories {
		from, middle, to := span(s)
		if begin.IsZero() || from.Before(begin) {
			begin = from
		}
		if middle.After(handover) {
			handover = middle
		}
		if to.After(end) {
			end = to
		}
		waits = append(waits, to.Sub(from))
	}
	slices.Sort(waits)
	took, n := end.Sub(begin), float64(len(stories))
	return phase{
		Seconds: took.Seconds(), Rate: n / took.Seconds(), Handover: handover.Sub(begin).Seconds(),
		Median: waits[len(waits)/2].Seconds(), P99: waits[len(waits)*99/100].Seconds(),
		Writes: asked.writes() / n, Reads: asked.reads() / n, ByMethod: asked,
	}
}
