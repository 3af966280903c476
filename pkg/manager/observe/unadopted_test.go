package observe_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const uid = types.UID("22222222-0000-0000-0000-000000000000")

// newVolume is one of the original system on file system fs-1.
func newVolume(name, path string, edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	object := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{
			wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner,
			wellknown.AnnotationFileSystemID:  "fs-1",
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path},
			},
		},
	}
	for _, edit := range edits {
		edit(object)
	}
	return object
}

func managed(object *corev1.PersistentVolume) {
	object.Annotations[wellknown.AnnotationPath] = object.Spec.NFS.Path
}

// deletable has a volume's directory removed once its claim is gone.
func deletable(object *corev1.PersistentVolume) {
	object.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	object.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "claim", UID: uid}
}

func annotated(key, value string) func(*corev1.PersistentVolume) {
	return func(object *corev1.PersistentVolume) { object.Annotations[key] = value }
}

func in(phase corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(object *corev1.PersistentVolume) { object.Status.Phase = phase }
}

func served(server string) func(*corev1.PersistentVolume) {
	return func(object *corev1.PersistentVolume) { object.Spec.NFS.Server = server }
}

// TestUnadopted: a volume of the original system is in the way of another's cleanup in whatever
// state it is, as long as its data would go, too.
func TestUnadopted(t *testing.T) {
	for name, c := range map[string]struct {
		other *corev1.PersistentVolume
		want  bool
	}{
		"at the path":              {newVolume("b", "/ns/shared", in("Bound")), true},
		"released":                 {newVolume("b", "/ns/shared", in("Released")), true},
		"failed":                   {newVolume("b", "/ns/shared", in("Failed")), true},
		"never bound":              {newVolume("b", "/ns/shared", in("Available")), true},
		"in another spelling":      {newVolume("b", "/ns//shared/"), true},
		"by another address":       {newVolume("b", "/ns/shared", served("localhost")), true},
		"inside":                   {newVolume("b", "/ns/shared/deep/inside"), true},
		"above":                    {newVolume("b", "/ns"), true},
		"beside":                   {newVolume("b", "/ns/shared2"), false},
		"the whole file system":    {newVolume("b", "/"), false},
		"on another file system":   {newVolume("b", "/ns/shared", annotated(wellknown.AnnotationFileSystemID, "fs-2")), false},
		"managed":                  {newVolume("b", "/ns/shared", managed), false},
		"of another provisioner":   {newVolume("b", "/ns/shared", annotated(wellknown.AnnotationProvisionedBy, "other")), false},
		"a SharedVolume's":         {newVolume("b", "/ns/shared", annotated(wellknown.AnnotationSharedVolume, "x")), false},
		"a root volume":            {newVolume("b", "/ns", func(o *corev1.PersistentVolume) { o.Spec.StorageClassName = wellknown.RootStorageClass }), false},
		"without a path, not NFS":  {newVolume("b", "", func(o *corev1.PersistentVolume) { o.Spec.NFS = nil }), false},
		"adopted after it was not": {newVolume("a", "/ns/shared", managed), false},
	} {
		t.Run(name, func(t *testing.T) {
			v := newGatherer(t)
			store := v.Caches.Volumes.GetStore()
			mine := newVolume(volumes.VolumeName(uid), "/ns/shared", managed, in("Released"), deletable)
			for _, object := range []*corev1.PersistentVolume{newVolume("a", "/elsewhere"), mine, c.other} {
				if err := store.Add(object); err != nil {
					t.Fatal(err)
				}
			}
			state := v.State(uid)
			if len(state.Volumes) != 1 {
				t.Fatalf("%d volumes", len(state.Volumes))
			}
			got := state.Volumes[0].Unadopted
			if (got != nil) != c.want || got != nil && got.Name != c.other.Name {
				t.Errorf("got %v, want one: %v", got, c.want)
			}
			if err := store.Delete(c.other); err != nil {
				t.Fatal(err)
			}
			if got := v.State(uid).Volumes[0].Unadopted; got != nil {
				t.Errorf("once it is gone, volume %s is in the way", got.Name)
			}
		})
	}
}

func newGatherer(t *testing.T) *observe.Gatherer {
	t.Helper()
	c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	v, err := observe.New(decide.Settings{Provisioner: wellknown.DefaultProvisioner}, c, func() targets.Snapshot { return targets.Snapshot{} })
	if err != nil {
		t.Fatal(err)
	}
	return v
}
