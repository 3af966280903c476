package main

import (
	"context"
	"time"
)

// alone is what single claims were like, one after the other.
type alone struct {
	Contender  string     `json:"contender"`
	Claims     int        `json:"claims"`
	Conditions conditions `json:"conditions"`
	// Beyond is from a claim's creation until it is Bound, without the pod's own time; Deleted
	// is the same from its deletion until its volume is gone. Milliseconds.
	Beyond  spread `json:"beyondPodMilliseconds"`
	Deleted spread `json:"deletedBeyondPodMilliseconds"`
	// Started is from the cluster's request for a volume until the mount Job is there.
	Started spread `json:"askedToJobMilliseconds"`
	// Writes for each claim; of its creation, and of its deletion.
	Writes       float64 `json:"writesPerClaim"`
	DeleteWrites float64 `json:"writesPerDelete"`
}

// measureAlone has each claim wait until the one before is served.
func (b *bench) measureAlone(ctx context.Context, c contender) (result alone, err error) {
	result = alone{Contender: c.name, Claims: b.options.alone}
	err = b.inWorld(ctx, "single claims, "+c.name, c, &result.Conditions, func(ctx context.Context, w *world) error {
		return w.with(ctx, c, func(p *program) error {
			claims := names("alone", b.options.alone)
			created, err := w.oneByOne(ctx, p, claims, w.createClaim, isBound)
			if err != nil {
				return err
			}
			var beyond, started, deleted []time.Duration
			for _, s := range w.read(claims) {
				beyond = append(beyond, s.bound.Sub(s.created)-c.pod)
				if at := w.jobAfter(s.created); c.pod > 0 {
					started = append(started, at.Sub(s.asked))
				}
			}
			removed, err := w.oneByOne(ctx, p, claims, w.deleteClaim, isGone)
			if err != nil {
				return err
			}
			for _, s := range w.read(claims) {
				deleted = append(deleted, s.gone.Sub(s.deleted)-c.pod)
			}
			result.Beyond, result.Started, result.Deleted = spreadOf(beyond), spreadOf(started), spreadOf(deleted)
			result.Writes, result.DeleteWrites = created.writes()/float64(len(claims)), removed.writes()/float64(len(claims))
			return nil
		})
	})
	return result, err
}

// oneByOne asks for something for each claim when the one before has it, and gives the requests
// that the program made because of it.
func (w *world) oneByOne(ctx context.Context, p *program, claims []string, ask func(context.Context, string) error, done func(story) bool) (requests, error) {
	before, err := settled(ctx, p.address, pause)
	if err != nil {
		return nil, err
	}
	for _, claim := range claims {
		if err := ask(ctx, claim); err != nil {
			return nil, err
		}
		served, cancel := context.WithTimeout(ctx, patience)
		_, err := w.await(served, "claim "+claim+" is served", []string{claim}, done)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	after, err := settled(ctx, p.address, silence)
	return after.since(before), err
}
