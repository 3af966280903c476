package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// idle is what the manager is like when it has many volumes and nothing to do.
type idle struct {
	Volumes    int        `json:"volumes"`
	Conditions conditions `json:"conditions"`
	// Start is from the start of the program until it leads and its loops begin; seconds, of
	// the median start.
	Start   spread  `json:"startSeconds"`
	Memory  memory  `json:"memoryMiB"` // at the end
	Minutes float64 `json:"minutes"`
	Reads   float64 `json:"readsPerMinute"`
	Writes  float64 `json:"writesPerMinute"` // without an election
	// Workers is how many mount Jobs ran in that time. One claim was served before, whose worker
	// has waited and must have ended.
	Workers int `json:"workersLeft"`
}

// starts is how often it is started.
const starts = 3

func (b *bench) measureIdle(ctx context.Context) error {
	c := b.ours(defaultLimits())
	result := idle{Volumes: b.options.volumes, Minutes: b.options.idle.Minutes()}
	err := b.onTestbed(ctx, fmt.Sprintf("idle with %d volumes", b.options.volumes), c, &result.Conditions, func(ctx context.Context, bed *testbed) error {
		if _, err := b.fill(ctx, bed, c, batch{claims: names("idle", b.options.volumes)}); err != nil {
			return err
		}
		for range starts {
			took, err := bed.measureStart(ctx, c)
			if err != nil {
				return err
			}
			result.Start.add(took.Seconds())
		}
		return bed.with(ctx, c, func(p *program) error {
			if err := bed.waitForWorker(ctx, c); err != nil {
				return err
			}
			return result.count(ctx, bed, p, b.options.idle)
		})
	})
	b.results.Idle = &result
	return err
}

func (bed *testbed) measureStart(ctx context.Context, c contender) (time.Duration, error) {
	p, err := bed.start(ctx, c, usualLease())
	if err != nil {
		return 0, err
	}
	return p.took, p.end(os.Interrupt)
}

// waitForWorker has one claim come and go, and waits for as long as its worker may wait for another.
func (bed *testbed) waitForWorker(ctx context.Context, c contender) error {
	if err := bed.createAndDelete(ctx, "last-before-idle"); err != nil {
		return err
	}
	return sleep(ctx, c.linger)
}

func (i *idle) count(ctx context.Context, bed *testbed, p *program, length time.Duration) error {
	before, err := settled(ctx, p.address, quietTime)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := sleep(ctx, length); err != nil {
		return err
	}
	after, err := requestsOf(ctx, p.address)
	if err != nil {
		return err
	}
	asked := after.since(before)
	i.Reads, i.Writes = asked.reads()/length.Minutes(), asked.writes()/length.Minutes()
	i.Workers = bed.ranAfter(begin)
	i.Memory, err = memoryOf(p.cmd.Process.Pid)
	return err
}

func sleep(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// spread is some numbers of the same thing.
type spread struct {
	Median float64   `json:"median"`
	Max    float64   `json:"max"`
	All    []float64 `json:"all"`
}

func (s *spread) add(n float64) {
	s.All = append(s.All, n)
	sorted := slices.Sorted(slices.Values(s.All))
	s.Median, s.Max = sorted[len(sorted)/2], sorted[len(sorted)-1]
}

// spreadOf is in milliseconds.
func spreadOf(all []time.Duration) (s spread) {
	for _, d := range all {
		s.add(float64(d.Microseconds()) / 1000)
	}
	return s
}
