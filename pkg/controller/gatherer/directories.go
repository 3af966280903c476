package gatherer

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

// counts are the numbers of volumes that have a directory.
type counts struct {
	all   int
	inUse int // neither released nor being deleted
	kept  int // in use, or with policy Retain
}

func (c counts) plus(other counts, times int) counts {
	return counts{c.all + times*other.all, c.inUse + times*other.inUse, c.kept + times*other.kept}
}

// countsOf is what one volume of ours adds.
func countsOf(volume *corev1.PersistentVolume) counts {
	c := counts{all: 1}
	if volume.DeletionTimestamp == nil && volume.Status.Phase != corev1.VolumeReleased {
		c.inUse, c.kept = 1, 1
	}
	if volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		c.kept = 1
	}
	return c
}

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
	counted  map[string]counted   // guarded by counting; by the name of the volume
	sums     map[directory]counts // guarded by counting
}

// counted is what one volume has added to the counts.
type counted struct {
	directory
	counts
}

func newVolumeCounts(store cache.Store, read func(*corev1.PersistentVolume) (directory, bool)) *volumeCounts {
	return &volumeCounts{
		store: store, read: read,
		changed: map[string]struct{}{}, counted: map[string]counted{}, sums: map[directory]counts{},
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

// others are the volumes that have a directory, without the one of a name.
func (v *volumeCounts) others(d directory, except string) counts {
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
		if v.without(except, directory{id, path}).all > 0 {
			found = append(found, id)
		}
	}
	return found
}

func (v *volumeCounts) without(name string, d directory) counts {
	if own := v.counted[name]; own.directory == d {
		return v.sums[d].plus(own.counts, -1)
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
		v.counted[volume.Name] = counted{d, countsOf(volume)}
		v.add(v.counted[volume.Name], 1)
	}
}

func (v *volumeCounts) add(c counted, times int) {
	v.sums[c.directory] = v.sums[c.directory].plus(c.counts, times)
	if v.sums[c.directory].all == 0 {
		delete(v.sums, c.directory)
	}
}
