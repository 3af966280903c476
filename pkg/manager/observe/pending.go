package observe

import (
	"hash/maphash"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
)

// pendingIndex has the operations that wait for a mount Job, as the claims loop decided them last. It
// is derived from the objects: a new leader fills it when it decides about every claim.
type pendingIndex struct {
	// deciding has the decisions about one claim follow each other: one that began with older objects
	// must not replace a newer one.
	deciding [64]sync.Mutex

	mu           sync.Mutex
	byClaim      map[types.UID][]decide.Pending
	byFileSystem map[string]map[types.UID][]decide.Pending // the same slices
}

// Decide decides about a claim, and indexes the operations that it waits for. It calls OnPending with
// the file systems of those that have changed: most decisions only repeat what is indexed, also those that the
// jobs loop has made while it creates a Job, and what failed is retried by its queue.
func (g *Gatherer) Decide(uid types.UID) (decide.State, decide.Plan) {
	lock := &g.pending.deciding[maphash.String(g.seed, string(uid))%uint64(len(g.pending.deciding))]
	lock.Lock()
	defer lock.Unlock()
	state := g.State(uid)
	plan := decide.Decide(state)
	before := g.pending.set(uid, plan.Pending)
	for _, pending := range plan.Pending {
		if !slices.ContainsFunc(before, func(indexed decide.Pending) bool { return isSame(indexed, pending) }) {
			g.OnPending(pending.FileSystemID)
		}
	}
	return state, plan
}

// isSame leaves out what a time that this process counts itself differs from decision to decision.
func isSame(a, b decide.Pending) bool {
	sameDue := a.Due.Sub(b.Due).Abs() < time.Second
	b.Due = a.Due
	return sameDue && reflect.DeepEqual(a, b)
}

// Pending returns the operations that wait for a mount Job of a file system, due or not, in their order: at
// most so many restores, so many copies and so many others, those whose turn is first. Restores may be many
// that fail again and again, and copies many that wait for each other: they must not hide the others, nor the
// copies of one namespace those of another.
func (g *Gatherer) Pending(fileSystemID string, most int) []decide.Pending {
	var restores, others []*decide.Pending
	copies := map[string][]*decide.Pending{} // by namespace
	for _, p := range g.pending.of(fileSystemID) {
		switch {
		case p.Operation.Kind == operations.Restore:
			restores = append(restores, p)
		case p.Operation.Copies():
			copies[p.Operation.Namespace] = append(copies[p.Operation.Namespace], p)
		default:
			others = append(others, p)
		}
	}
	pending := slices.Concat(first(others, most), first(restores, most))
	for _, ofNamespace := range copies {
		pending = append(pending, first(ofNamespace, max(most/len(copies), 1))...)
	}
	slices.SortStableFunc(pending, func(a, b decide.Pending) int { return compare(&a, &b) })
	return pending
}

// Unindex drops the operations of a claim that can be in no Job, so that they do not hide others. They
// are indexed again when the claim is decided about again.
func (g *Gatherer) Unindex(claim types.UID) { g.pending.set(claim, nil) }

// set returns what it replaces.
func (x *pendingIndex) set(uid types.UID, pending []decide.Pending) (before []decide.Pending) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before = x.byClaim[uid]
	for _, p := range before {
		delete(x.byFileSystem[p.FileSystemID], uid)
		if len(x.byFileSystem[p.FileSystemID]) == 0 {
			delete(x.byFileSystem, p.FileSystemID)
		}
	}
	delete(x.byClaim, uid)
	if len(pending) == 0 {
		return before
	}
	if x.byClaim == nil {
		x.byClaim, x.byFileSystem = map[types.UID][]decide.Pending{}, map[string]map[types.UID][]decide.Pending{}
	}
	x.byClaim[uid] = pending
	for _, p := range pending {
		if x.byFileSystem[p.FileSystemID] == nil {
			x.byFileSystem[p.FileSystemID] = map[types.UID][]decide.Pending{}
		}
		x.byFileSystem[p.FileSystemID][uid] = pending
	}
	return before
}

func (x *pendingIndex) of(fileSystemID string) []*decide.Pending {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := make([]*decide.Pending, 0, len(x.byFileSystem[fileSystemID]))
	for _, pending := range x.byFileSystem[fileSystemID] { // replaced as a whole, never changed
		for i := range pending {
			if pending[i].FileSystemID == fileSystemID {
				found = append(found, &pending[i])
			}
		}
	}
	return found
}

// first returns the operations whose turn is first, in order. Thousands are never sorted for a few.
func first(all []*decide.Pending, most int) []decide.Pending {
	kept := make([]*decide.Pending, 0, min(len(all), 2*most))
	full := false
	for _, p := range all {
		if full && compare(p, kept[most-1]) > 0 {
			continue
		}
		kept = append(kept, p)
		if len(kept) == 2*most {
			slices.SortFunc(kept, compare)
			kept, full = kept[:most], true
		}
	}
	slices.SortFunc(kept, compare)
	sorted := make([]decide.Pending, min(len(kept), most))
	for i := range sorted {
		sorted[i] = *kept[i]
	}
	return sorted
}

func compare(a, b *decide.Pending) int {
	if order := a.Turn().Compare(b.Turn()); order != 0 {
		return order
	}
	return strings.Compare(a.Operation.Volume, b.Operation.Volume)
}
