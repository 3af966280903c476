package gatherer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/operations"
)

// wanted is the index of the operations that wait for a mount Job, as the claims loop decided them
// last. It is derived from the objects: a new leader fills it when it decides about every claim.
type pendingIndex struct {
	// deciding has the decisions about one claim follow each other: one that began with older objects
	// must not replace a newer one.
	deciding [64]sync.Mutex

	mu           sync.Mutex
	byClaim      map[types.UID][]lifecycle.Pending
	byFileSystem map[string]map[types.UID][]lifecycle.Pending // the same slices
}

// Decide decides about a claim, and indexes the operations that it waits for.
func (g *Gatherer) Decide(uid types.UID) (lifecycle.State, lifecycle.Plan) {
	lock := &g.pending.deciding[maphash.String(g.seed, string(uid))%uint64(len(g.pending.deciding))]
	lock.Lock()
	defer lock.Unlock()
	state := g.State(uid)
	plan := lifecycle.Decide(state)
	g.pending.set(uid, plan.Pending)
	return state, plan
}

// Waiting are the operations that wait for a mount Job of a file system, due or not, in their order: at
// most so many restores and so many others, those whose turn is first. Restores may be many that fail
// again and again, and must not hide the others.
func (g *Gatherer) Pending(fileSystemID string, most int) []lifecycle.Pending {
	var restores, others []*lifecycle.Pending
	for _, w := range g.pending.of(fileSystemID) {
		if w.Operation.Kind == operations.Restore {
			restores = append(restores, w)
		} else {
			others = append(others, w)
		}
	}
	waiting := append(first(others, most), first(restores, most)...)
	slices.SortStableFunc(waiting, func(a, b lifecycle.Pending) int { return compare(&a, &b) })
	return waiting
}

// Unindex has an operation wait no longer that can be in no Job, so that it does not hide others. It is
// indexed again when its claim is decided about again.
func (g *Gatherer) Unindex(claim types.UID) { g.pending.set(claim, nil) }

func (w *pendingIndex) set(uid types.UID, waiting []lifecycle.Pending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, before := range w.byClaim[uid] {
		w.remove(before.FileSystemID, uid)
	}
	delete(w.byClaim, uid)
	if len(waiting) == 0 {
		return
	}
	if w.byClaim == nil {
		w.byClaim, w.byFileSystem = map[types.UID][]lifecycle.Pending{}, map[string]map[types.UID][]lifecycle.Pending{}
	}
	w.byClaim[uid] = waiting
	for _, o := range waiting {
		if w.byFileSystem[o.FileSystemID] == nil {
			w.byFileSystem[o.FileSystemID] = map[types.UID][]lifecycle.Pending{}
		}
		w.byFileSystem[o.FileSystemID][uid] = waiting
	}
}

func (w *pendingIndex) remove(fileSystemID string, uid types.UID) {
	delete(w.byFileSystem[fileSystemID], uid)
	if len(w.byFileSystem[fileSystemID]) == 0 {
		delete(w.byFileSystem, fileSystemID)
	}
}

func (w *pendingIndex) of(fileSystemID string) []*lifecycle.Pending {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := make([]*lifecycle.Pending, 0, len(w.byFileSystem[fileSystemID]))
	for _, waiting := range w.byFileSystem[fileSystemID] { // replaced as a whole, never changed
		for i := range waiting {
			if waiting[i].FileSystemID == fileSystemID {
				found = append(found, &waiting[i])
			}
		}
	}
	return found
}

// first are the operations whose turn is first, in order. Thousands are never sorted for a few.
func first(all []*lifecycle.Pending, most int) []lifecycle.Pending {
	kept := make([]*lifecycle.Pending, 0, min(len(all), 2*most))
	full := false
	for _, w := range all {
		if full && compare(w, kept[most-1]) > 0 {
			continue
		}
		kept = append(kept, w)
		if len(kept) == 2*most {
			slices.SortFunc(kept, compare)
			kept, full = kept[:most], true
		}
	}
	slices.SortFunc(kept, compare)
	sorted := make([]lifecycle.Pending, min(len(kept), most))
	for i := range sorted {
		sorted[i] = *kept[i]
	}
	return sorted
}

func compare(a, b *lifecycle.Pending) int {
	if order := a.Turn().Compare(b.Turn()); order != 0 {
		return order
	}
	return strings.Compare(a.Operation.Volume, b.Operation.Volume)
}
