package jobs

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// claimsPerSync bounds the claims that one sync of a file system decides about. With the search for
// them among 20,000 it takes less than 50 ms of a processor (BenchmarkLook). A Job's worth of
// operations fits.
const claimsPerSync = 640

// candidate is a claim, or an object that names one, for which an operation may wait.
type candidate struct {
	since time.Time
	name  string // of the object, unique
	claim types.UID
	// volume names the claim; nil if claim does. Reading all of them would be most of a sync.
	volume *corev1.PersistentVolume
}

func (c candidate) uid(provisioner string) types.UID {
	if c.volume == nil {
		return c.claim
	}
	return volumes.Read(c.volume, provisioner).ClaimUID
}

func compare(a, b candidate) int {
	return cmp.Or(a.since.Compare(b.since), strings.Compare(a.name, b.name))
}

// passes remembers, for each file system with more candidates than one sync decides about, how far
// the syncs have come. They go through the candidates in rounds, the oldest first, so that each has
// its turn; claims whose own events asked for a sync come before that. A pass is over when each
// candidate was decided about once since the last event.
type passes struct {
	mu sync.Mutex
	of map[string]*pass // guarded by mu; by file system
}

type pass struct {
	asked   map[types.UID]struct{}
	last    candidate
	decided int
	open    bool      // there are candidates that no sync has decided about since the last event
	again   time.Time // the earliest time that a sync of this pass has asked for
}

// ask puts a claim first. Beyond what one sync can decide about, claims wait for their turn.
func (p *passes) ask(id string, uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.get(id)
	if len(of.asked) < claimsPerSync/2 {
		of.asked[uid] = struct{}{}
	}
}

// restart has the pass of a file system include what was decided about before.
func (p *passes) restart(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of, ok := p.of[id]; ok {
		of.decided = 0
	}
}

// next are the candidates to decide about now, and the claims that come before them.
func (p *passes) next(id string, all []candidate) (first []types.UID, chosen []candidate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.get(id)
	first = slices.Collect(maps.Keys(of.asked))
	clear(of.asked)
	if len(all) <= claimsPerSync {
		of.open = false
		return nil, all
	}
	return first, of.window(all, claimsPerSync-len(first))
}

// again is when the next sync should be. This one wants it at a time, and an open pass goes on when
// the file system has rested; zero is never, for both.
func (p *passes) again(id string, at, rested time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.get(id)
	at = earlier(at, of.again)
	of.again = time.Time{}
	if of.open {
		of.again = at
		return earlier(at, rested)
	}
	return at
}

func (p *passes) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, id)
}

func (p *passes) get(id string) *pass {
	if p.of == nil {
		p.of = map[string]*pass{}
	}
	if p.of[id] == nil {
		p.of[id] = &pass{asked: map[types.UID]struct{}{}}
	}
	return p.of[id]
}

// window is the next part of the round.
func (p *pass) window(all []candidate, n int) []candidate {
	if !p.open {
		p.decided = 0
	}
	chosen := oldest(all, n, func(c candidate) bool { return compare(c, p.last) > 0 })
	if missing := n - len(chosen); missing > 0 {
		chosen = append(chosen, oldest(all, missing, func(c candidate) bool { return compare(c, p.last) <= 0 })...)
	}
	p.last = chosen[len(chosen)-1]
	p.decided += n
	p.open = p.decided < len(all)
	return chosen
}

// oldest are the first n candidates of those that count, in their order. All are never sorted.
func oldest(all []candidate, n int, counts func(candidate) bool) []candidate {
	found := make([]candidate, 0, 2*n)
	full := false
	for _, c := range all {
		if !counts(c) || full && compare(c, found[n-1]) > 0 {
			continue
		}
		found = append(found, c)
		if len(found) == 2*n {
			slices.SortFunc(found, compare)
			found, full = found[:n], true
		}
	}
	slices.SortFunc(found, compare)
	return found[:min(n, len(found))]
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
