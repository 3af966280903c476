package gatherer

import (
	"fmt"
	"path"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// byOriginal is the index of the original system's volumes that are not adopted. Each is found at
// its path, and within that and every path above it. It is the gatherer's, because only here it is
// known which provisioner's volumes they are.
const byOriginal = "original"

func at(fileSystemID, p string) string { return "at " + fileSystemID + " " + p }

func within(fileSystemID, p string) string { return "within " + fileSystemID + " " + p }

// originalsPlaces is the index function. It also places volumes that cannot be adopted as they
// are, such as those with a slash at the end of their path: pods use them all the same.
func (g *Gatherer) originalsPlaces(object any) ([]string, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("indexing: %T is no volume", object)
	}
	read := volumes.Read(volume, g.Provisioner)
	if read.Kind != volumes.Original || volume.Spec.NFS == nil {
		return nil, nil
	}
	g.originals.changed()
	p := path.Clean("/" + read.Path)
	places := []string{at(read.FileSystemID, p)}
	for ; p != "/"; p = path.Dir(p) {
		places = append(places, within(read.FileSystemID, p))
	}
	return places, nil
}

// unadopted is the first, by name, of the volumes that the ledger does not know and whose data
// would go with a volume's directory; nil if there is none.
func (g *Gatherer) unadopted(object *corev1.PersistentVolume) *corev1.PersistentVolume {
	if object.Spec.NFS == nil {
		return nil
	}
	id, p := object.Annotations[wellknown.AnnotationFileSystemID], path.Clean("/"+object.Spec.NFS.Path)
	found := g.firstOriginal(within(id, p))
	for above := path.Dir(p); found == nil && above != "/"; above = path.Dir(above) {
		found = g.firstOriginal(at(id, above))
	}
	return found
}

func (g *Gatherer) firstOriginal(place string) *corev1.PersistentVolume {
	known, version := g.originals.first(place)
	if known != nil {
		return known
	}
	objects, err := g.Caches.Volumes.GetIndexer().ByIndex(byOriginal, place)
	if err != nil {
		panic(fmt.Sprintf("gatherer: %v", err)) // the index is ours, so asking it cannot fail
	}
	var found *corev1.PersistentVolume
	for _, object := range objects {
		volume, ok := object.(*corev1.PersistentVolume)
		if ok && (found == nil || volume.Name < found.Name) {
			found = volume
		}
	}
	g.originals.remember(place, found, version)
	return found
}

// originals remembers answers of the index until a volume of the original system changes: an
// answer is as long as there are volumes, and each volume of a directory asks for the same one.
type originals struct {
	mu      sync.Mutex
	version int                                 // guarded by mu
	firsts  map[string]*corev1.PersistentVolume // guarded by mu; by place
}

// changed is called under the cache's lock, before the index changes.
func (o *originals) changed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.version++
	o.firsts = nil
}

// first is nil where no volume is remembered. The version is that of what the index has now, or of
// something older.
func (o *originals) first(place string) (volume *corev1.PersistentVolume, version int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.firsts[place], o.version
}

func (o *originals) remember(place string, volume *corev1.PersistentVolume, version int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if volume == nil || version != o.version {
		return
	}
	if o.firsts == nil {
		o.firsts = map[string]*corev1.PersistentVolume{}
	}
	o.firsts[place] = volume
}
