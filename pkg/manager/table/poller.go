package table

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/awserrors"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/queue"
)

const (
	pollTimeout  = 5 * time.Minute  // of one listing, or of all questions after it, should the API's own limits fail
	kickInterval = 10 * time.Second // at least, between two polls
	// maxFinds bounds the access points that are looked up one by one after a listing, so that
	// invented ids do not use up the API's rate limit.
	maxFinds = 20
)

// Keys of the poller's queue, one for each kind of call.
const (
	pollKey     = "poll"
	confirmKey  = "confirm"
	describeKey = "describe"
)

// poller calls the EFS API and keeps the inventory. Its queue has one worker, so no two calls are
// under way at once.
type poller struct {
	api     API
	options Options
	retry   *backoff.ExponentialBackOff // after polls that failed
	failed  func()                      // counts a failed call
	changed func()                      // there is another inventory
	queue   *queue.Queue[string]

	mu        sync.Mutex
	inventory inventory   // guarded by mu
	begun     time.Time   // of the latest poll; guarded by mu
	next      time.Time   // when the next poll is due, unless it is kicked; guarded by mu
	kicked    bool        // since begun; guarded by mu
	missing   []string    // file systems to confirm; guarded by mu
	points    []ports.Key // access points to describe, in order; guarded by mu
}

func newPoller(api API, o Options, failed, changed func()) *poller {
	p := &poller{
		api: api, options: o, failed: failed, changed: changed,
		retry: backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(2*kickInterval), backoff.WithMaxInterval(o.PollingInterval), backoff.WithMaxElapsedTime(0)),
	}
	p.queue = queue.New(queue.Options{Name: "polls", KeyName: "call", DrainTimeout: -1, Log: o.Log}, p.sync)
	return p
}

// run polls until the context ends. That ends a call, too: it only reads, so no time is given to it.
func (p *poller) run(ctx context.Context) {
	_ = p.queue.Run(ctx, 1, func() { p.queue.Add(pollKey) }) // an error says that a call was ended
}

func (p *poller) sync(ctx context.Context, key string) (again time.Duration, err error) {
	switch key {
	case pollKey:
		again = p.poll(ctx)
	case confirmKey:
		p.confirm(ctx)
	case describeKey:
		p.describe(ctx)
	}
	return again, nil // failures are in the inventory
}

// poll lists file systems and describes access points, when that is due. The next poll is due after
// the interval, or earlier, with backoff, when this one failed.
func (p *poller) poll(ctx context.Context) (again time.Duration) {
	begun := time.Now()
	p.mu.Lock()
	early := p.due().Sub(begun)
	if early <= 0 {
		p.begun, p.kicked = begun, false
	}
	p.mu.Unlock()
	if early > 0 {
		return early
	}
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	listing, err := p.api.ListFileSystems(limited)
	if ctx.Err() != nil {
		return 0
	}
	interval := wait.Jitter(p.options.PollingInterval, wellknown.PollingJitter)
	if err == nil {
		p.retry.Reset()
	} else {
		p.failed()
		interval = min(interval, p.retry.NextBackOff())
	}
	p.update(func(i *inventory) {
		i.polled, i.failure = true, err
		if err == nil {
			i.listing, i.succeeded = listing, p.options.Now()
		}
	})
	if err == nil { // else it would be waited for once more for each file system
		p.describe(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = begun.Add(interval)
	return max(time.Until(p.due()), time.Millisecond)
}

// due is when the next poll may begin. The caller holds mu.
func (p *poller) due() time.Time {
	if soon := p.begun.Add(kickInterval); p.kicked && soon.Before(p.next) {
		return soon
	}
	return p.next
}

func (p *poller) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kicked = true
	p.queue.AddAfter(pollKey, time.Until(p.due()))
}

// confirm asks whether the missing file systems exist, once after each listing.
func (p *poller) confirm(ctx context.Context) {
	p.mu.Lock()
	ids, asOf, before := p.missing, p.inventory.listing.ReadAt, p.inventory.existence
	p.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	answers := map[string]existence{} // of these ids only; others are forgotten
	for _, id := range ids {
		if answer, ok := before[id]; ok && answer.listing.Equal(asOf) {
			answers[id] = answer
			continue
		}
		exists, err := p.api.FileSystemExists(limited, id)
		if ctx.Err() != nil {
			return
		}
		answers[id] = existence{listing: asOf, gone: !exists}
		if err != nil {
			p.failed()
			answers[id] = existence{listing: asOf, gone: before[id].gone, err: err}
		}
	}
	p.update(func(i *inventory) { i.existence = answers })
}

// describe looks up the demanded access points. Without any, the API is not called.
func (p *poller) describe(ctx context.Context) {
	p.mu.Lock()
	keys, before := p.points, p.inventory.points
	p.mu.Unlock()
	if len(keys) == 0 && len(before) == 0 {
		return
	}
	byFileSystem := map[string][]ports.Key{}
	for _, key := range keys {
		byFileSystem[key.FileSystem] = append(byFileSystem[key.FileSystem], key)
	}
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	round := lookups{before: before, answers: map[ports.Key]pointAnswer{}}
	for _, id := range slices.Sorted(maps.Keys(byFileSystem)) {
		p.lookUp(limited, &round, id, byFileSystem[id])
	}
	if ctx.Err() == nil {
		p.update(func(i *inventory) { i.points = round.answers })
	}
}

// lookups are those of access points after one listing.
type lookups struct {
	before, answers map[ports.Key]pointAnswer
	finds           int
}

// lookUp lists the access points of one file system, and finds the demanded ones that it does not
// have: they may be another one's. After an error, answers are as they were before.
func (p *poller) lookUp(ctx context.Context, round *lookups, fileSystemID string, keys []ports.Key) {
	listed, err := p.api.ListAccessPoints(ctx, fileSystemID)
	if err != nil {
		p.failed()
	}
	byID := make(map[string]efs.AccessPoint, len(listed))
	for _, point := range listed {
		byID[point.ID] = point
	}
	for _, key := range keys {
		answer, failure := pointAnswer{known: true}, err
		switch point, exists := byID[key.AccessPoint]; {
		case exists:
			answer.point = point
		case err == nil && round.finds < maxFinds:
			round.finds++
			if answer.point, _, failure = p.api.FindAccessPoint(ctx, key.AccessPoint); failure != nil {
				p.failed()
			}
		}
		if failure != nil {
			answer = round.before[key]
			// The text of an error differs each time, and a change of it is news for all that wait.
			if answer.err == nil || awserrors.Cause(answer.err) != awserrors.Cause(failure) {
				answer.err = failure
			}
		}
		round.answers[key] = answer
	}
}

func (p *poller) update(change func(*inventory)) {
	p.mu.Lock()
	change(&p.inventory)
	p.mu.Unlock()
	p.changed()
}

func (p *poller) latest() inventory {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inventory
}

// ask enqueues calls about missing file systems, if there are any, and about access points, if they
// are others than before. Both are all that matter: answers about others are forgotten.
func (p *poller) ask(missing []string, points []ports.Key) {
	p.mu.Lock()
	changed := !slices.Equal(p.points, points)
	p.points = points
	if len(missing) > 0 {
		p.missing = missing
	}
	p.mu.Unlock()
	if len(missing) > 0 {
		p.queue.Add(confirmKey)
	}
	if changed {
		p.queue.Add(describeKey)
	}
}

// inventory is what the EFS API has answered so far. It is never changed once it is handed over.
type inventory struct {
	polled    bool        // the first poll has ended, or there is no API
	listing   efs.Listing // the latest answer; zero before it
	failure   error       // of the latest poll
	succeeded time.Time   // when the latest answer came; zero before it
	existence map[string]existence
	points    map[ports.Key]pointAnswer // of the access points that were requested
}

type existence struct {
	listing time.Time // ReadAt of the listing that was the reason to ask
	gone    bool
	err     error // then gone is what it was before
}

type pointAnswer struct {
	known bool            // the API has answered
	point efs.AccessPoint // the zero one if there is none
	err   error           // of the latest call; the rest is as it was before
}

// listed says whether the API has answered a poll.
func (i inventory) listed() bool { return !i.succeeded.IsZero() }

// since is what is left when everything after a listing is of another account or region: that
// listing, in which nothing counts as missing.
func (i inventory) since(accepted efs.Listing) inventory {
	accepted.Complete = false
	i.listing, i.succeeded = accepted, accepted.ReadAt
	i.existence, i.points = nil, nil
	return i
}

// gone are the ids that the API does not find.
func (i inventory) gone(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !i.existence[id].gone })
}

// unconfirmed are the ids for which the API was not asked since its latest listing.
func (i inventory) unconfirmed(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		answer, ok := i.existence[id]
		return ok && answer.listing.Equal(i.listing.ReadAt)
	})
}

// remember adds a listing to what was seen before. Mount targets that could not be read this
// time are as they were.
func remember(seen map[string]efs.FileSystem, listing efs.Listing, keep func(id string) bool) map[string]efs.FileSystem {
	now := map[string]efs.FileSystem{}
	for id, fs := range seen {
		if keep(id) {
			now[id] = fs
		}
	}
	for _, fs := range listing.FileSystems {
		if listing.Failed[fs.ID] != nil {
			fs.MountTargets = seen[fs.ID].MountTargets
		}
		now[fs.ID] = fs
	}
	return now
}
