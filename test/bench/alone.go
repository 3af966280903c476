package main

import (
	"context"
	"time"
)

// alone is what single claims were like, one after the other.
type alone struct {
	Contender string `json:"contender"`
	// Warm is with a worker that waits from an earlier claim, so that none waits for a pod.
	Warm       bool       `json:"warm"`
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	// Beyond is from a claim's creation until it is Bound, without the pod's own time if it waits for
	// one; Deleted is the same from its deletion until its volume is gone. Milliseconds.
	Beyond  spread `json:"beyondPodMilliseconds"`
	Deleted spread `json:"deletedBeyondPodMilliseconds"`
	// Started is from the cluster's request for a volume until a mount Job has the operation; Bound
	// until the claim is Bound, again without the pod's own time.
	Started spread `json:"askedToJobMilliseconds"`
	Bound   spread `json:"askedToBoundBeyondPodMilliseconds"`
	// Jobs is how many mount Jobs did all that. More than one with a warm worker means that some of
	// the claims waited for a pod.
	Jobs int `json:"mountJobs"`
	// Writes for each claim; of its creation, and of its deletion.
	Writes       float64 `json:"writesPerClaim"`
	DeleteWrites float64 `json:"writesPerDelete"`
}

// measureAlone has each of n claims wait until the one before is served.
func (b *bench) measureAlone(ctx context.Context, c contender, n int) (result alone, err error) {
	result = alone{Contender: c.name, Warm: c.linger > 0, Claims: n}
	what := "single claims, " + c.name
	if result.Warm {
		what += " with a warm worker"
	}
	err = b.onTestbed(ctx, what, c, &result.Conditions, func(ctx context.Context, bed *testbed) error {
		return bed.with(ctx, c, func(p *program) error {
			if result.Warm {
				if err := bed.createAndDelete(ctx, "warms-the-worker"); err != nil {
					return err
				}
			}
			return result.measure(ctx, bed, p, c)
		})
	})
	b.logf("  asked for → bound %.0f ms, deleted %.0f ms, median, beyond the pod's own time", result.Bound.Median, result.Deleted.Median)
	return result, err
}

func (a *alone) measure(ctx context.Context, bed *testbed, p *program, c contender) error {
	pod := c.pod
	if a.Warm {
		pod = 0
	}
	begin, claims := time.Now(), names("alone", a.Claims)
	created, err := bed.oneAfterAnother(ctx, p, claims, bed.createClaim, isBound)
	if err != nil {
		return err
	}
	var beyond, started, bound, deleted []time.Duration
	for _, s := range bed.read(claims) {
		beyond, bound = append(beyond, s.bound.Sub(s.created)-pod), append(bound, s.bound.Sub(s.asked)-pod)
		if c.pod > 0 {
			started = append(started, s.begun.Sub(s.asked))
		}
	}
	removed, err := bed.oneAfterAnother(ctx, p, claims, bed.deleteClaim, isGone)
	if err != nil {
		return err
	}
	for _, s := range bed.read(claims) {
		deleted = append(deleted, s.gone.Sub(s.deleted)-pod)
	}
	a.Beyond, a.Started, a.Bound, a.Deleted = spreadOf(beyond), spreadOf(started), spreadOf(bound), spreadOf(deleted)
	a.Writes, a.DeleteWrites = created.writes()/float64(a.Claims), removed.writes()/float64(a.Claims)
	a.Jobs = len(bed.jobsAfter(begin))
	return nil
}

// oneAfterAnother makes a request for each claim when the one before is served, and returns the requests
// that the program made because of it.
func (bed *testbed) oneAfterAnother(ctx context.Context, p *program, claims []string, request func(context.Context, string) error, done func(claimTimes) bool) (requests, error) {
	before, err := settled(ctx, p.address, shortQuietTime)
	if err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if err := request(ctx, claim); err != nil {
			return nil, err
		}
		served, cancel := context.WithTimeout(ctx, stepTimeout)
		_, err := bed.await(served, "claim "+claim+" is served", []string{claim}, done)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	after, err := settled(ctx, p.address, quietTime)
	return after.since(before), err
}
