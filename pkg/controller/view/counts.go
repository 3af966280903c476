package view

import (
	"fmt"
	"iter"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// byChange is the name of an index without values: its function only notes which volumes change.
const byChange = "change"

// directory is one path of one file system.
type directory struct{ fileSystemID, path string }

// volumeCounts counts the volumes of each directory, so that a question about one directory costs
// the same however many volumes have it.
//
// The cache calls note, under its own lock, for each volume that is added, updated or deleted.
// Before each answer the counts catch up with the volumes that were noted, so they are never older
// than the cache.
type volumeCounts struct {
	store cache.Store
	read  func(*corev1.PersistentVolume) (directory, bool)

	noting  sync.Mutex
	changed map[string]struct{} // guarded by noting; names of volumes

	counting sync.Mutex
	counted  map[string]directory // guarded by counting; by the name of the volume
	sums     map[directory]int    // guarded by counting
}

func newVolumeCounts(store cache.Store, read func(*corev1.PersistentVolume) (directory, bool)) *volumeCounts {
	return &volumeCounts{
		store: store, read: read,
		changed: map[string]struct{}{}, counted: map[string]directory{}, sums: map[directory]int{},
	}
}

// note is an index function.
func (v *volumeCounts) note(object any) ([]string, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("indexing: %T is no volume", object)
	}
	v.noting.Lock()
	defer v.noting.Unlock()
	v.changed[volume.Name] = struct{}{}
	return nil, nil
}

// catchUp also runs after each event: a standby asks no question, and would note for ever.
func (v *volumeCounts) catchUp() {
	v.counting.Lock()
	defer v.counting.Unlock()
	v.countChanged()
}

// others is how many volumes have a directory, without the one of a name.
func (v *volumeCounts) others(d directory, except string) int {
	v.counting.Lock()
	defer v.counting.Unlock()
	v.countChanged()
	return v.without(except, d)
}

// fileSystemsOf are those of some file systems on which a path is that of a volume, other than the
// one of a name.
func (v *volumeCounts) fileSystemsOf(path, except string, ids iter.Seq[string]) []string {
	v.counting.Lock()
	defer v.counting.Unlock()
	v.countChanged()
	var found []string
	for id := range ids {
		if v.without(except, directory{id, path}) > 0 {
			found = append(found, id)
		}
	}
	return found
}

func (v *volumeCounts) without(name string, d directory) int {
	if v.counted[name] == d {
		return v.sums[d] - 1
	}
	return v.sums[d]
}

// countChanged must not hold noting while it reads the cache, which calls note under its lock.
func (v *volumeCounts) countChanged() {
	v.noting.Lock()
	changed := v.changed
	if len(changed) > 0 {
		v.changed = map[string]struct{}{}
	}
	v.noting.Unlock()
	for name := range changed {
		v.count(name)
	}
}

func (v *volumeCounts) count(name string) {
	if before, ok := v.counted[name]; ok {
		v.add(before, -1)
		delete(v.counted, name)
	}
	object, exists, err := v.store.GetByKey(name)
	volume, ok := object.(*corev1.PersistentVolume)
	if err != nil || !exists || !ok {
		return
	}
	if d, ok := v.read(volume); ok {
		v.counted[volume.Name] = d
		v.add(d, 1)
	}
}

func (v *volumeCounts) add(d directory, n int) {
	if v.sums[d] += n; v.sums[d] == 0 {
		delete(v.sums, d)
	}
}
