package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// takeover is what the end of a leader costs.
type takeover struct {
	Contender  string     `json:"contender"`
	Lease      string     `json:"lease"` // duration/deadline/retry
	Seconds    float64    `json:"leaseDurationSeconds"`
	Conditions conditions `json:"conditions"`
	// Clean and Killed are from the end of the leader, by SIGTERM or SIGKILL, until the next
	// claim is begun: a mount Job has its operation, of the library's its volume is there. Seconds.
	Clean  spread `json:"cleanSeconds"`
	Killed spread `json:"killedSeconds"`
	// LeaseWrites is how often two replicas write the Lease, per minute.
	LeaseWrites float64 `json:"leaseWritesPerMinute"`
}

// shortLease is what an administrator may choose who wants less waiting.
func shortLease() lease { return lease{6 * time.Second, 4 * time.Second, time.Second} }

func (b *bench) measureTakeovers(ctx context.Context) error {
	for _, run := range []struct {
		contender contender
		lease     lease
	}{
		{b.ours(defaultLimits()), usualLease()}, {b.ours(defaultLimits()), shortLease()},
		{b.peer(raisedLimits(), managerWorkers, 1), usualLease()},
	} {
		if len(b.wanted(run.contender)) == 0 {
			continue
		}
		result, err := b.measureTakeover(ctx, run.contender, run.lease)
		if err != nil {
			return err
		}
		b.results.Takeovers = append(b.results.Takeovers, result)
	}
	return nil
}

func (b *bench) measureTakeover(ctx context.Context, c contender, l lease) (takeover, error) {
	result := takeover{Contender: c.name, Lease: l.String(), Seconds: l.Duration.Seconds()}
	err := b.onTestbed(ctx, fmt.Sprintf("takeover, %s with lease %s", c.name, l), c, &result.Conditions, func(ctx context.Context, bed *testbed) (err error) {
		pair := &pair{testbed: bed, contender: c, lease: l}
		defer func() { err = errors.Join(err, pair.end()) }()
		if err := pair.begin(ctx); err != nil {
			return err
		}
		if result.LeaseWrites, err = pair.countLeaseWrites(ctx); err != nil {
			return err
		}
		for range b.options.takeovers {
			for _, kind := range []struct {
				signal syscall.Signal
				times  *spread
			}{{syscall.SIGTERM, &result.Clean}, {syscall.SIGKILL, &result.Killed}} {
				took, err := pair.takeOver(ctx, kind.signal)
				if err != nil {
					return fmt.Errorf("after %s: %w", kind.signal, err)
				}
				kind.times.add(took.Seconds())
			}
		}
		return nil
	})
	return result, err
}

// pair is a leader and a standby.
type pair struct {
	*testbed
	contender       contender
	lease           lease
	leader, standby *program // nil before there is one
	claims          int      // so far
}

func (p *pair) begin(ctx context.Context) (err error) {
	if p.leader, err = p.start(ctx, p.contender, p.lease); err != nil {
		return err
	}
	_, err = p.serve(ctx)
	return err
}

func (p *pair) end() error {
	var errs []error
	for _, program := range []*program{p.leader, p.standby} {
		if program != nil {
			errs = append(errs, program.end(os.Interrupt))
		}
	}
	return errors.Join(errs...)
}

// serve creates one claim, and returns when it was begun.
func (p *pair) serve(ctx context.Context) (begun time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	p.claims++
	claim := fmt.Sprintf("takeover-%d", p.claims)
	if err := p.createClaim(ctx, claim); err != nil {
		return time.Time{}, err
	}
	times, err := p.await(ctx, "claim "+claim+" is bound", []string{claim}, isBound)
	if err != nil {
		return time.Time{}, err
	}
	if p.contender.pod > 0 {
		return times[0].begun, nil
	}
	return times[0].volume, nil
}

// leaseWatch is long enough for some dozen renewals.
const leaseWatch = 30 * time.Second

func (p *pair) countLeaseWrites(ctx context.Context) (perMinute float64, err error) {
	if err := p.addStandby(ctx); err != nil {
		return 0, err
	}
	since := time.Now()
	err = sleep(ctx, leaseWatch)
	return float64(p.leaseWrites(since)) / leaseWatch.Minutes(), err
}

// settling is how long a standby has to fill its caches if it does not log that it has.
const settling = 5 * time.Second

func (p *pair) addStandby(ctx context.Context) (err error) {
	if p.standby != nil {
		return nil
	}
	if p.standby, err = p.launch(ctx, p.contender, p.lease); err != nil {
		return err
	}
	if p.contender.filled == "" {
		return sleep(ctx, settling)
	}
	// A Deployment ends the old leader only when the new pod is ready, and that is when they are.
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err = p.standby.awaitLine(ctx, p.contender.filled)
	return err
}

// takeOver ends the leader at some moment between two renewals, and makes a claim at once.
func (p *pair) takeOver(ctx context.Context, signal syscall.Signal) (took time.Duration, err error) {
	if err := p.addStandby(ctx); err != nil {
		return 0, err
	}
	if err := sleep(ctx, rand.N(p.lease.Retry)); err != nil {
		return 0, err
	}
	end := time.Now()
	if err := p.leader.cmd.Process.Signal(signal); err != nil {
		return 0, err
	}
	begun, err := p.serve(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, p.standby.tail())
	}
	if err := p.leader.end(syscall.SIGKILL); err != nil {
		return 0, err
	}
	p.leader, p.standby = p.standby, nil
	return begun.Sub(end), nil
}
