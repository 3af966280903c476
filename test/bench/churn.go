package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// churn is a change of leaders while claims are deleted all the time.
type churn struct {
	Volumes    int        `json:"volumes"`
	PerSecond  float64    `json:"deletionsPerSecond"`
	Conditions conditions `json:"conditions"`
	// Begun is from the election of the new leader until its loops begin; Served from the end of
	// the old one until the next claim's mount Job is there. Seconds; a new leader that does not
	// get there within the deadline counts with the deadline.
	Begun    spread  `json:"electedToBegunSeconds"`
	Served   spread  `json:"endToNextClaimSeconds"`
	Deadline float64 `json:"deadlineSeconds"`
	Missed   int     `json:"missed"`
}

// elected is what the manager logs when the Lease is its own.
const elected = "msg=leading"

// measureChurn is for a run without the part scale, which otherwise measures this in its cluster.
func (b *bench) measureChurn(ctx context.Context) error {
	if b.measures(partScale) {
		return nil
	}
	c := b.ours(defaultLimits())
	under := conditions{}
	err := b.onTestbed(ctx, fmt.Sprintf("%d volumes, %s", b.options.scale.volumes, c.name), c, &under, func(ctx context.Context, bed *testbed) error {
		if _, err := b.fillLarge(ctx, bed, c); err != nil {
			return err
		}
		return b.measureChurnIn(ctx, bed)
	})
	if b.results.Churn != nil {
		b.results.Churn.Conditions = under
	}
	return err
}

// measureChurnIn leaves a filled cluster as full as it was.
func (b *bench) measureChurnIn(ctx context.Context, bed *testbed) error {
	o := b.options
	result := churn{Volumes: o.scale.volumes, PerSecond: o.churnRate, Deadline: o.churnDeadline.Seconds()}
	b.results.Churn = &result
	err := result.measure(ctx, &pair{testbed: bed, contender: b.ours(defaultLimits()), lease: usualLease()}, o.takeovers)
	b.logf("  leader changed while %g claims a second were deleted: begun %.1f s after the election at worst, %d missed",
		o.churnRate, result.Begun.Max, result.Missed)
	return err
}

func (r *churn) measure(ctx context.Context, p *pair, times int) (err error) {
	defer func() { err = errors.Join(err, p.end()) }()
	if err := p.begin(ctx); err != nil {
		return err
	}
	passing, end := context.WithCancel(ctx)
	group, passing := errgroup.WithContext(passing)
	group.Go(func() error { return p.createAndDeleteOthers(passing, r.PerSecond) })
	defer func() {
		end()
		err = errors.Join(err, group.Wait())
	}()
	for range times {
		if err := r.change(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// createAndDeleteOthers creates and deletes claims of another provisioner until the context ends.
func (bed *testbed) createAndDeleteOthers(ctx context.Context, perSecond float64) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := bed.createAndDeleteOther(ctx, fmt.Sprintf("churn-%06d", i)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// change ends the leader and waits for the next one to work.
func (r *churn) change(ctx context.Context, p *pair) error {
	if err := p.addStandby(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(r.Deadline*float64(time.Second)))
	defer cancel()
	end := time.Now()
	if err := p.leader.end(syscall.SIGTERM); err != nil {
		return err
	}
	p.leader, p.standby = p.standby, nil
	at, err := p.leader.awaitLine(limited, elected)
	if err != nil {
		return err
	}
	begun, err := p.leader.awaitLine(limited, p.contender.begins)
	if err != nil && limited.Err() == nil {
		return err
	}
	if err != nil {
		r.Missed++
		r.Begun.add(r.Deadline)
		return nil
	}
	r.Begun.add(begun.Sub(at).Seconds())
	served, err := p.serve(ctx)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.leader.tail())
	}
	r.Served.add(served.Sub(end).Seconds())
	return nil
}
