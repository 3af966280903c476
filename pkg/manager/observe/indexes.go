package observe

import (
	"fmt"
	"hash/maphash"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// byChange is the name of an index without values: its function only notes which volumes change.
const byChange = "change"

type directory struct{ fileSystemID, path string }

// counts are the numbers of volumes that have a directory.
type counts struct {
	all   int
	inUse int // neither released nor being deleted
	kept  int // in use, or with policy Retain
}

func (c counts) plus(other counts, times int) counts {
	return counts{c.all + times*other.all, c.inUse + times*other.inUse, c.kept + times*other.kept}
}

// directories index volumes by their directories, so that a question about one directory costs the
// same however many volumes have it.
//
// The cache calls note, under its own lock, for each volume that is added, updated or deleted.
// Before each answer the volumes that were noted are indexed, so an answer is never older than the
// cache. The exception is a volume that is missing when the cache was listed again, because its watch had
// expired: only the handlers of the informer get to know of that one, a moment later.
type directories struct {
	store       cache.Store
	provisioner string

	noting  sync.Mutex
	changed map[string]struct{} // guarded by noting; names of volumes

	mu      sync.Mutex
	entries map[string]entry     // guarded by mu; by the name of the volume
	counts  map[directory]counts // guarded by mu
	// originals are the volumes of the original system that are not adopted, at their path and within
	// it and every path above it, in the order of their names.
	originals map[place][]*corev1.PersistentVolume // guarded by mu
}

// entry is the index's record of one volume.
type entry struct {
	directory
	counts
	original *original // nil for most
}

type original struct {
	volume *corev1.PersistentVolume
	places []place
}

// place is a directory, or all that is within it.
type place struct {
	directory
	within bool
}

func newDirectories(store cache.Store, provisioner string) *directories {
	return &directories{
		store: store, provisioner: provisioner, changed: map[string]struct{}{},
		entries: map[string]entry{}, counts: map[directory]counts{}, originals: map[place][]*corev1.PersistentVolume{},
	}
}

// note is an index function.
func (d *directories) note(object any) ([]string, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("indexing: %T is no volume", object)
	}
	d.noting.Lock()
	defer d.noting.Unlock()
	d.changed[volume.Name] = struct{}{}
	return nil, nil
}

// changedTo is a handler of the informer. A standby asks no question, and would note for ever without it.
func (d *directories) changedTo(before, after any) {
	if after == nil {
		_, _ = d.note(before) // it is a volume
	}
	d.lock()
	d.mu.Unlock()
}

// lock catches up first. It must not hold noting while it reads the cache, which calls note under its lock.
func (d *directories) lock() {
	d.mu.Lock()
	d.noting.Lock()
	changed := d.changed
	if len(changed) > 0 {
		d.changed = map[string]struct{}{}
	}
	d.noting.Unlock()
	for name := range changed {
		d.add(d.entries[name], -1)
		delete(d.entries, name)
		object, _, err := d.store.GetByKey(name)
		volume, ok := object.(*corev1.PersistentVolume)
		if err != nil || !ok {
			continue
		}
		if e := d.entryOf(volume); e != (entry{}) {
			d.entries[name] = e
			d.add(e, 1)
		}
	}
}

func (d *directories) entryOf(volume *corev1.PersistentVolume) (e entry) {
	read := volumes.Read(volume, d.provisioner)
	if id, path, ok := caches.DirectoryOf(volume); ok && read.Kind != volumes.Foreign {
		e.directory, e.counts.all = directory{id, path}, 1
		if volume.DeletionTimestamp == nil && volume.Status.Phase != corev1.VolumeReleased {
			e.inUse, e.kept = 1, 1
		}
		if read.Policy == corev1.PersistentVolumeReclaimRetain {
			e.kept = 1
		}
	}
	// Volumes that cannot be adopted as they are count too, such as those with a slash at the end of
	// their path: pods use them all the same.
	if read.Kind == volumes.Original && volume.Spec.NFS != nil {
		at := directory{read.FileSystemID, path.Clean("/" + read.Path)}
		e.original = &original{volume, []place{{at, false}}}
		for ; at.path != "/"; at.path = path.Dir(at.path) {
			e.original.places = append(e.original.places, place{at, true})
		}
	}
	return e
}

// add adds what an entry has to the sums, or removes it.
func (d *directories) add(e entry, times int) {
	if e.all > 0 {
		d.counts[e.directory] = d.counts[e.directory].plus(e.counts, times)
		if d.counts[e.directory].all == 0 {
			delete(d.counts, e.directory)
		}
	}
	if e.original == nil {
		return
	}
	for _, place := range e.original.places {
		all := d.originals[place]
		i, found := slices.BinarySearchFunc(all, e.original.volume, func(a, b *corev1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
		switch {
		case times > 0:
			d.originals[place] = slices.Insert(all, i, e.original.volume)
		case found && len(all) == 1:
			delete(d.originals, place)
		case found:
			d.originals[place] = slices.Delete(all, i, i+1)
		}
	}
}

// others counts the volumes that have a directory, without the named one.
func (d *directories) others(of directory, except string) counts {
	d.lock()
	defer d.mu.Unlock()
	if own := d.entries[except]; own.directory == of {
		return d.counts[of].plus(own.counts, -1)
	}
	return d.counts[of]
}

// sharer returns a claim of a namespace whose volume has a directory, too, and is in use; "" if there is none. Only
// where there is another volume are all volumes gone through.
func (d *directories) sharer(of directory, except, namespace string) string {
	if d.others(of, except).inUse == 0 {
		return ""
	}
	d.lock()
	defer d.mu.Unlock()
	for name, e := range d.entries {
		if name == except || e.directory != of || e.inUse == 0 {
			continue
		}
		object, _, err := d.store.GetByKey(name)
		volume, ok := object.(*corev1.PersistentVolume)
		if err == nil && ok && volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == namespace {
			return volume.Spec.ClaimRef.Name
		}
	}
	return ""
}

// unadopted returns the first, by name, of the volumes that the ledger does not know and whose data would
// be removed with a directory; nil if there is none.
func (d *directories) unadopted(at directory) *corev1.PersistentVolume {
	d.lock()
	defer d.mu.Unlock()
	at.path = path.Clean("/" + at.path)
	found := d.originals[place{at, true}]
	for at.path = path.Dir(at.path); len(found) == 0 && at.path != "/"; at.path = path.Dir(at.path) {
		found = d.originals[place{at, false}]
	}
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

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
