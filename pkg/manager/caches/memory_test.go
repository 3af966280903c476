//go:build !race

package caches

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// boundVolume returns the volume of a boundClaim.
func boundVolume(n int, provisioner string) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	meta := anyMeta()
	path := fmt.Sprintf("/team-%d/data-web-%d-%s", n%100, n, uidNumber(n))
	meta.Name, meta.Namespace, meta.UID = volumes.VolumeName(uidNumber(n)), "", types.UID(fmt.Sprintf("11111111-0000-0000-0000-%012d", n))
	meta.ResourceVersion, meta.ManagedFields = fmt.Sprint(2_000_000+n), managedBy("manager")
	meta.Annotations = map[string]string{
		wellknown.AnnotationProvisionedBy: provisioner, wellknown.AnnotationFileSystemID: "fs-0123456789abcdef0", wellknown.AnnotationPath: path,
		"pv.kubernetes.io/bound-by-controller": "yes",
	}
	meta.Labels = map[string]string{wellknown.LabelFileSystemID: "fs-0123456789abcdef0", "volume_name": fmt.Sprintf("data-web-%d", n)}
	meta.Finalizers = []string{"kubernetes.io/pv-protection", wellknown.FinalizerVolume}
	return &corev1.PersistentVolume{
		ObjectMeta: meta,
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "efs-stunnel", AccessModes: modes(), Capacity: gibibytes("1Gi"), VolumeMode: &mode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			MountOptions:                  []string{"nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport", "port=20490"},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: fmt.Sprintf("team-%d", n%100), Name: fmt.Sprintf("data-web-%d", n),
				UID: uidNumber(n), ResourceVersion: fmt.Sprint(1_000_000 + n),
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound, LastPhaseTransitionTime: &metav1.Time{}},
	}
}

// foreignVolume returns the volume of a boundClaim of another provisioner.
func foreignVolume(n int, provisioner string) *corev1.PersistentVolume {
	volume := boundVolume(n, provisioner)
	volume.Name = "pvc-" + string(uidNumber(n))
	volume.Labels, volume.Annotations = nil, map[string]string{wellknown.AnnotationProvisionedBy: provisioner}
	volume.Spec.MountOptions = nil
	volume.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: provisioner, VolumeHandle: fmt.Sprintf("vol-%017d", n), FSType: "ext4",
		VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-" + provisioner},
	}}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"us-east-1a"}}},
	}}}}
	return volume
}

// received is an object as the client decodes it, which shares memory with no other.
func received[T interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}](t *testing.T, sent, object T) T {
	t.Helper()
	data, err := sent.Marshal()
	if err == nil {
		err = object.Unmarshal(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// TestMemoryOfAVolume holds docs/reference/limits.md: with a heap that grows by half until it is collected,
// 50,000 volumes with their claims must fit into the shipped limit.
func TestMemoryOfAVolume(t *testing.T) {
	const n = 2000
	for name, kind := range map[string]struct {
		volume func(int, string) *corev1.PersistentVolume
		most   uint64
	}{
		wellknown.DefaultProvisioner: {boundVolume, 3600},
		"ebs.csi.aws.com":            {foreignVolume, 2800},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(fake.NewClientset(), nil, "efs-stunnel")
			if err != nil {
				t.Fatal(err)
			}
			before, small := heap(), newTrimmer()
			for i := range n {
				for store, object := range map[interface{ Add(any) error }]any{
					c.Claims.GetStore():  received(t, boundClaim(i, name), &corev1.PersistentVolumeClaim{}),
					c.Volumes.GetStore(): received(t, kind.volume(i, name), &corev1.PersistentVolume{}),
				} {
					trimmed, err := small.trim(object)
					if err != nil {
						t.Fatal(err)
					}
					if err := store.Add(trimmed); err != nil {
						t.Fatal(err)
					}
				}
			}
			each := (heap() - before) / n
			t.Logf("a volume with its claim takes %d bytes", each)
			if each > kind.most {
				t.Errorf("a volume with its claim takes %d bytes, more than %d", each, kind.most)
			}
			runtime.KeepAlive(c)
		})
	}
}
