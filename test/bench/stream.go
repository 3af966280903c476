package main

import (
	"context"
	"fmt"
	"time"
)

// stream is what claims were like that came one after another without waiting for each other.
type stream struct {
	Contender  string     `json:"contender"`
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	Create     phase      `json:"create"`
}

// streamPace is the time between two claims of a stream.
const streamPace = 200 * time.Millisecond

func (b *bench) measureStreams(ctx context.Context) error {
	for _, c := range b.wanted(b.ours(defaultLimits()), b.peer(defaultLimits(), managerWorkers, b.options.stream)) {
		result, err := b.measureStream(ctx, c)
		if err != nil {
			return err
		}
		b.results.Streams = append(b.results.Streams, result)
	}
	return nil
}

func (b *bench) measureStream(ctx context.Context, c contender) (result stream, err error) {
	result = stream{Contender: c.name, Claims: b.options.stream}
	what := fmt.Sprintf("%d claims, one each %s, %s", result.Claims, streamPace, c.name)
	err = b.onTestbed(ctx, what, c, &result.Conditions, func(ctx context.Context, bed *testbed) error {
		return bed.with(ctx, c, func(p *program) error {
			work := bed.creation("stream", names("stream", result.Claims))
			work.pace = streamPace
			result.Create, err = bed.measurePhase(ctx, p, work)
			return err
		})
	})
	b.logf("  bound %.0f ms after the request, median", 1000*result.Create.Median)
	b.logJobs("created", result.Create.Jobs)
	return result, err
}

// paced has calls wait, so that one begins each interval. An interval of 0 changes nothing.
func paced(interval time.Duration, call func(context.Context, string) error) func(context.Context, string) error {
	if interval == 0 {
		return call
	}
	turns := make(chan struct{}, 1)
	turns <- struct{}{}
	return func(ctx context.Context, name string) error {
		select {
		case <-turns:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		time.AfterFunc(interval, func() { turns <- struct{}{} })
		return call(ctx, name)
	}
}

func (r results) streamRows() []row {
	if len(r.Streams) == 0 {
		return nil
	}
	ours, peer := r.Streams[0], stream{}
	if len(r.Streams) > 1 {
		peer = r.Streams[1]
	}
	return []row{
		{fmt.Sprintf("%d claims, one each %s: mount Jobs", ours.Claims, streamPace), float64(len(ours.Create.Jobs)), "Jobs", target{2, atMost}, 0},
		{"… request → Bound, median", 1000 * ours.Create.Median, "ms", target{}, 1000 * peer.Create.Median},
		{"… p99", 1000 * ours.Create.P99, "ms", target{}, 1000 * peer.Create.P99},
		{"… API writes for each", ours.Create.Writes, "writes", target{}, peer.Create.Writes},
	}
}
