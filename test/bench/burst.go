package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// burst is what many claims at once were like for a contender.
type burst struct {
	Contender  string     `json:"contender"`
	Limits     limits     `json:"limits"`
	Workers    int        `json:"workers"`
	Finalizer  bool       `json:"libraryFinalizer,omitempty"`
	Warm       bool       `json:"warm,omitempty"`          // a worker waited before it
	Finishes   bool       `json:"finishBinding,omitempty"` // the manager, with --finish-binding
	Annotated  bool       `json:"annotated,omitempty"`     // by the policy of the component fast-binding
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	Create     phase      `json:"create"`
	Delete     phase      `json:"delete"`
}

// phase is the creation of all claims of a burst, or their deletion.
type phase struct {
	Seconds float64 `json:"seconds"` // from the first request until the last claim is served
	Rate    float64 `json:"claimsPerSecond"`
	// FromVolume is the rate from when the first volume was there or released: what the cluster's
	// own controllers do alone is counted from there, too.
	FromVolume float64 `json:"claimsPerSecondFromFirstVolume"`
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

// job is a mount Job of a phase; times count from the phase's first request. A Job whose worker still
// waited was created before it, and has no end if its worker waits after it.
type job struct {
	Operations int        `json:"operations"` // of all its batches in the phase
	Created    float64    `json:"createdSeconds"`
	Ended      float64    `json:"endedSeconds,omitempty"`
	Batches    []jobBatch `json:"batches"`
}

// jobBatch is what a Job was created with, or its worker was given.
type jobBatch struct {
	Number     int     `json:"number"`
	Operations int     `json:"operations"`
	Began      float64 `json:"beganSeconds"`
}

// phaseDeadline is more than the slowest contender needs.
const phaseDeadline = 30 * time.Minute

// measureBurst creates claims on a testbed of their own, and deletes them.
func (b *bench) measureBurst(ctx context.Context, c contender) (result burst, err error) {
	result = burst{Contender: c.name, Limits: c.limits, Workers: c.workers, Finalizer: c.finalizer, Warm: c.warm, Claims: c.claims, Finishes: c.finishes, Annotated: c.policy != ""}
	profiles := ""
	if c.name == managerName {
		profiles = b.options.profiles
	}
	what := fmt.Sprintf("burst of %d claims, %s with %d/%d requests and %d workers", c.claims, c.name, c.limits.QPS, c.limits.Burst, c.workers)
	if c.finalizer {
		what += ", with finalizer"
	}
	if c.warm {
		what += ", with a warm worker"
	}
	if c.finishes {
		what += ", " + bindingName(result)
	}
	err = b.onTestbed(ctx, what, c, &result.Conditions, func(ctx context.Context, bed *testbed) error {
		return bed.with(ctx, c, func(p *program) error {
			if c.warm {
				if err := bed.createAndDelete(ctx, "warms-the-worker"); err != nil {
					return err
				}
			}
			claims := names("burst", c.claims)
			create := bed.creation(fmt.Sprintf("create-%d", c.limits.QPS), claims)
			create.profiles = profiles
			if result.Create, err = bed.measurePhase(ctx, p, create); err != nil {
				return err
			}
			result.Delete, err = bed.measurePhase(ctx, p, phaseWork{
				name: fmt.Sprintf("delete-%d", c.limits.QPS), profiles: profiles, claims: claims, request: bed.deleteClaim, done: isGone,
				span: func(s claimTimes) (from, handover, to time.Time) { return s.deleted, s.released, s.gone },
			})
			return err
		})
	})
	b.logf("  bound %.0f/s, deleted %.0f/s", result.Create.Rate, result.Delete.Rate)
	b.logJobs("created", result.Create.Jobs)
	b.logJobs("deleted", result.Delete.Jobs)
	return result, err
}

// loggedBatches is how many batches of a Job are printed. The results have all.
const loggedBatches = 10

// logJobs prints the operations of each Job, batch by batch.
func (b *bench) logJobs(what string, jobs []job) {
	for _, j := range jobs {
		var batches []string
		for _, batch := range j.Batches[:min(len(j.Batches), loggedBatches)] {
			batches = append(batches, fmt.Sprintf("%d at %.1f s", batch.Operations, batch.Began))
		}
		if more := len(j.Batches) - len(batches); more > 0 {
			batches = append(batches, fmt.Sprintf("%d more batches", more))
		}
		b.logf("  %s by a mount Job with %d operations: %s", what, j.Operations, strings.Join(batches, ", "))
	}
}

// phaseWork is what is requested in a phase.
type phaseWork struct {
	name     string
	profiles string // folder; "" for none
	claims   []string
	pace     time.Duration // between two claims; 0 for all at once
	request  func(context.Context, string) error
	done     func(claimTimes) bool
	span     func(claimTimes) (from, handover, to time.Time)
}

func (bed *testbed) creation(name string, claims []string) phaseWork {
	return phaseWork{
		name: name, claims: claims, request: bed.createClaim, done: isBound,
		span: func(s claimTimes) (from, handover, to time.Time) { return s.created, s.volume, s.bound },
	}
}

// profileLength is that of a burst, of ours.
const profileLength = 10 * time.Second

// measurePhase makes a request for every claim, and waits until all are served and until
// nothing more is written because of it.
func (bed *testbed) measurePhase(ctx context.Context, p *program, work phaseWork) (phase, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, phaseDeadline, fmt.Errorf("it takes more than %s", phaseDeadline))
	defer cancel()
	before, err := settled(ctx, p.address, shortQuietTime)
	if err != nil {
		return phase{}, err
	}
	saved := profile(ctx, p.address, work.profiles, work.name, profileLength)
	begin := time.Now()
	if err := each(ctx, work.claims, paced(work.pace, work.request)); err != nil {
		return phase{}, err
	}
	times, err := bed.await(ctx, work.name+" is over", work.claims, work.done)
	if err != nil {
		return phase{}, err
	}
	after, err := settled(ctx, p.address, quietTime)
	if err != nil {
		return phase{}, err
	}
	result := newPhase(times, work.span, after.since(before))
	result.Jobs = bed.jobsSince(begin)
	return result, saved()
}

func (bed *testbed) jobsSince(begin time.Time) []job {
	var jobs []job
	for _, claimTimes := range bed.jobsAfter(begin) {
		j := job{Created: claimTimes.created.Sub(begin).Seconds()}
		if !claimTimes.ended.IsZero() {
			j.Ended = claimTimes.ended.Sub(begin).Seconds()
		}
		for _, b := range claimTimes.batches {
			j.Operations += b.operations
			j.Batches = append(j.Batches, jobBatch{b.number, b.operations, b.at.Sub(begin).Seconds()})
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func newPhase(times []claimTimes, span func(claimTimes) (from, handover, to time.Time), asked requests) phase {
	var begin, volume, handover, end time.Time
	var waits []time.Duration
	for _, s := range times {
		from, middle, to := span(s)
		if begin.IsZero() || from.Before(begin) {
			begin = from
		}
		if volume.IsZero() || middle.Before(volume) {
			volume = middle
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
	took, n := end.Sub(begin), float64(len(times))
	return phase{
		Seconds: took.Seconds(), Rate: n / took.Seconds(), FromVolume: n / end.Sub(volume).Seconds(), Handover: handover.Sub(begin).Seconds(),
		Median: waits[len(waits)/2].Seconds(), P99: waits[len(waits)*99/100].Seconds(),
		Writes: asked.writes() / n, Reads: asked.reads() / n, ByMethod: asked,
	}
}
