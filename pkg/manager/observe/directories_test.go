package observe_test

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func claimNumber(n int) types.UID { return types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", n)) }

// fill adds released volumes, with policy Delete, each at the path that path returns for it.
func fill(t *testing.T, v *observe.Gatherer, n int, path func(int) string) {
	t.Helper()
	for i := range n {
		object := newVolume(volumes.VolumeName(claimNumber(i)), path(i), managed, in(corev1.VolumeReleased), deletable)
		object.Spec.ClaimRef.UID = claimNumber(i)
		if err := v.Caches.Volumes.GetStore().Add(object); err != nil {
			t.Fatal(err)
		}
	}
}

// allocated returns the memory that observing n claims takes, with what they ask for their own path.
func allocated(v *observe.Gatherer, n int) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range n {
		s := v.State(claimNumber(i))
		s.Holders(s.Volumes[0].Object.Spec.NFS.Path)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestVolumesOfOnePathCostNoMore than volumes with a path each: memory stands for what is read,
// because the answers of an index and of a volume that is read are new memory.
func TestVolumesOfOnePathCostNoMore(t *testing.T) {
	const n = 2000
	apart, together := newGatherer(t), newGatherer(t)
	fill(t, apart, n, func(i int) string { return fmt.Sprintf("/ns/%d", i) })
	fill(t, together, n, func(int) string { return "/ns/shared" })
	for i := range n { // not adopted, so in the way of them all
		for _, v := range []*observe.Gatherer{apart, together} {
			if err := v.Caches.Volumes.GetStore().Add(newVolume(fmt.Sprint("original-", i), "/ns/shared")); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, got := allocated(apart, n), allocated(together, n)
	if got > 2*want {
		t.Errorf("observing %d volumes of one path takes %d bytes, and %d with a path each", n, got, want)
	}
}

// TestOthersOfADirectory: what becomes of a directory depends on whether others stay, and what may
// join it on whether others use it.
func TestOthersOfADirectory(t *testing.T) {
	retain := func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	deleting := func(v *corev1.PersistentVolume) { at := metav1.Now(); v.DeletionTimestamp = &at }
	tests := map[string]struct {
		other       *corev1.PersistentVolume
		kept, inUse bool
	}{
		"bound":            {newVolume("b", "/ns/shared", managed, in(corev1.VolumeBound)), true, true},
		"not bound yet":    {newVolume("b", "/ns/shared", managed, in(corev1.VolumeAvailable)), true, true},
		"released, Delete": {newVolume("b", "/ns/shared", managed, in(corev1.VolumeReleased)), false, false},
		"released, Retain": {newVolume("b", "/ns/shared", managed, in(corev1.VolumeReleased), retain), true, false},
		"being deleted":    {newVolume("b", "/ns/shared", managed, in(corev1.VolumeAvailable), deleting), false, false},
		"elsewhere":        {newVolume("b", "/ns/other", managed, in(corev1.VolumeBound)), false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := newGatherer(t)
			fill(t, v, 1, func(int) string { return "/ns/shared" })
			if err := v.Caches.Volumes.GetStore().Add(tt.other); err != nil {
				t.Fatal(err)
			}
			s := v.State(claimNumber(0))
			if got := s.Volumes[0].Kept; got != tt.kept {
				t.Errorf("kept is %v, want %v", got, tt.kept)
			}
			id, path, _ := caches.DirectoryOf(s.Volumes[0].Object)
			if got := s.InUse(id, path); got != tt.inUse {
				t.Errorf("in use is %v, want %v", got, tt.inUse)
			}
		})
	}
}

// TestSharerOfADirectory is named to claims of its own namespace only.
func TestSharerOfADirectory(t *testing.T) {
	operation := operations.Operation{Owner: operations.Owner{Volume: "a", Namespace: "ns"}, Path: "/ns/shared"}
	of := func(namespace, name string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
		}
	}
	tests := map[string]struct {
		other *corev1.PersistentVolume
		want  string
	}{
		"of the namespace":    {newVolume("b", "/ns/shared", managed, in(corev1.VolumeBound), of("ns", "data-0")), "data-0"},
		"of another one":      {newVolume("b", "/ns/shared", managed, in(corev1.VolumeBound), of("other", "data-0")), ""},
		"released":            {newVolume("b", "/ns/shared", managed, in(corev1.VolumeReleased), of("ns", "data-0")), ""},
		"another directory":   {newVolume("b", "/ns/other", managed, in(corev1.VolumeBound), of("ns", "data-0")), ""},
		"its own volume":      {newVolume("a", "/ns/shared", managed, in(corev1.VolumeBound), of("ns", "data-0")), ""},
		"reserved for no one": {newVolume("b", "/ns/shared", managed, in(corev1.VolumeAvailable), func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := newGatherer(t)
			if err := v.Caches.Volumes.GetStore().Add(tt.other); err != nil {
				t.Fatal(err)
			}
			id, _, _ := caches.DirectoryOf(tt.other)
			if got := v.Sharer(id, operation); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestSharedDirectoryIsSeenAtOnce: the counts are never behind the cache.
func TestSharedDirectoryIsSeenAtOnce(t *testing.T) {
	v := newGatherer(t)
	fill(t, v, 1, func(int) string { return "/ns/shared" })
	store := v.Caches.Volumes.GetStore()
	other := newVolume("b", "/ns/shared", managed, in(corev1.VolumeBound))
	moved := newVolume("b", "/ns/elsewhere", managed, in(corev1.VolumeBound))
	for _, step := range []struct {
		name string
		do   func(any) error
		with *corev1.PersistentVolume
		want bool
	}{
		{"added", store.Add, other, true},
		{"updated without a change", store.Update, other, true},
		{"at another path", store.Update, moved, false},
		{"back", store.Update, other, true},
		{"deleted", store.Delete, other, false},
		{"on another file system", store.Add, newVolume("b", "/ns/shared", managed, annotated(wellknown.AnnotationFileSystemID, "fs-2")), false},
	} {
		if err := step.do(step.with); err != nil {
			t.Fatal(err)
		}
		if got := v.State(claimNumber(0)).Volumes[0].Shared; got != step.want {
			t.Errorf("%s: shared is %v, want %v", step.name, got, step.want)
		}
	}
}
