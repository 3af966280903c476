package view

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// byOriginal is the index of the original system's volumes that are not adopted. Each is found at
// its path, and within that and every path above it. It is the view's, because only here it is
// known which provisioner's volumes they are.
const byOriginal = "original"

func at(fileSystemID, p string) string { return "at " + fileSystemID + " " + p }

func within(fileSystemID, p string) string { return "within " + fileSystemID + " " + p }

// originalsPlaces is the index function. It also places volumes that cannot be adopted as they
// are, such as those with a slash at the end of their path: pods use them all the same.
func (v *View) originalsPlaces(object any) ([]string, error) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return nil, fmt.Errorf("indexing: %T is no volume", object)
	}
	read := volumes.Read(volume, v.Provisioner)
	if read.Kind != volumes.Original || volume.Spec.NFS == nil {
		return nil, nil
	}
	p := path.Clean("/" + read.Path)
	places := []string{at(read.FileSystemID, p)}
	for ; p != "/"; p = path.Dir(p) {
		places = append(places, within(read.FileSystemID, p))
	}
	return places, nil
}

// unadopted is the first, by name, of the volumes that the ledger does not know and whose data
// would go with a volume's directory; nil if there is none.
func (v *View) unadopted(object *corev1.PersistentVolume) *corev1.PersistentVolume {
	if object.Spec.NFS == nil {
		return nil
	}
	id, p := object.Annotations[wellknown.AnnotationFileSystemID], path.Clean("/"+object.Spec.NFS.Path)
	found := v.firstOriginal(within(id, p))
	for above := path.Dir(p); found == nil && above != "/"; above = path.Dir(above) {
		found = v.firstOriginal(at(id, above))
	}
	return found
}

func (v *View) firstOriginal(place string) *corev1.PersistentVolume {
	objects, err := v.Caches.Volumes.GetIndexer().ByIndex(byOriginal, place)
	if err != nil {
		panic(fmt.Sprintf("view: %v", err)) // the index is ours, so asking it cannot fail
	}
	var found *corev1.PersistentVolume
	for _, object := range objects {
		volume, ok := object.(*corev1.PersistentVolume)
		if ok && (found == nil || volume.Name < found.Name) {
			found = volume
		}
	}
	return found
}
