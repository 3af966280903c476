package sharedvolumes

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func TestVolumeIsWhatOthersTakeItFor(t *testing.T) {
	v, _ := newPair(shared("team", "data"), 20491)
	want := ports.Volume{Name: "pv-team-data", On: point(), Port: 20491, Loopback: true}
	if diff := cmp.Diff(want, ports.VolumeOf(v)); diff != "" {
		t.Errorf("for the ports (-want +got):\n%s", diff)
	}
	v.Annotations[wellknown.AnnotationProvisionedBy] = wellknown.DefaultProvisioner
	v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if got := volumes.Read(v, wellknown.DefaultProvisioner); got.Kind != volumes.Foreign {
		t.Errorf("for the claims' loop it is %+v: its data would be cleaned up", got)
	}
}

func TestVolumeOfAPath(t *testing.T) {
	v, _ := newPair(shared("team", "data", ofPath("/a/b"), func(o *v1alpha1.SharedVolume) { o.Spec.ReadOnly = true }), 20490)
	if nfs := v.Spec.NFS; nfs.Path != "/a/b" || nfs.Server != wellknown.LoopbackAddress || !nfs.ReadOnly || !slices.Contains(v.Spec.MountOptions, "ro") {
		t.Errorf("got %+v, %q", nfs, v.Spec.MountOptions)
	}
	if key := ports.VolumeOf(v).On; key != (ports.Key{FileSystem: "fs-1"}) {
		t.Errorf("it is on %s", key)
	}
	if diff := cmp.Diff([]corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, v.Spec.AccessModes); diff != "" {
		t.Errorf("modes mismatch (-want +got):\n%s", diff)
	}
}

// TestChangesKeepTheSpellingOfMountOptions: earlier versions wrote nfsvers.
func TestChangesKeepTheSpellingOfMountOptions(t *testing.T) {
	s := stateWith(bound)
	s.volume.Spec.MountOptions[0] = "nfsvers=4.1"
	if got := s.pair().Changes(); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}

// TestUpdatesKeepWhatOthersAdded, and change nothing of what they were given.
func TestUpdatesKeepWhatOthersAdded(t *testing.T) {
	s := stateWith(bound)
	s.volume.Labels["backup"], s.volume.Annotations["note"] = "yes", "mine"
	s.volume.Annotations[corev1.MountOptionAnnotation] = "port=1"
	before := s.volume.DeepCopy()
	got := s.pair().Changes()[0].Volume
	if got.Labels["backup"] != "yes" || got.Annotations["note"] != "mine" || len(got.Finalizers) != 1 {
		t.Errorf("got %+v", got.ObjectMeta)
	}
	if port := ports.VolumeOf(got).Port; port != 20491 {
		t.Errorf("kubelet would use port %d", port)
	}
	if diff := cmp.Diff(before, s.volume); diff != "" {
		t.Errorf("the original was changed (-before +after):\n%s", diff)
	}
}
