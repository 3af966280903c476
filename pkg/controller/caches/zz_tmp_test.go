package caches

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMem(t *testing.T) {
	mode := os.Getenv("MODE")
	c, _ := New(fake.NewClientset(), "efs-stunnel")
	var m0, m1 runtime.MemStats
	runtime.GC(); runtime.GC()
	runtime.ReadMemStats(&m0)
	class := "shared"
	for i := range 10000 {
		uid := types.UID(fmt.Sprintf("11111111-1111-1111-1111-%012d", i))
		name := fmt.Sprintf("idle-%05d", i)
		pvc := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", UID: uid, ResourceVersion: fmt.Sprint(i + 100000),
				Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes", "volume.beta.kubernetes.io/storage-provisioner": "gnuthought.com/efs-stunnel", "volume.kubernetes.io/storage-provisioner": "gnuthought.com/efs-stunnel"},
				Finalizers: []string{"kubernetes.io/pvc-protection"}},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volumes.VolumeName(uid), StorageClassName: &class, AccessModes: modes(), Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("1Gi")}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: "Bound", AccessModes: modes(), Capacity: gibibytes("1Gi")},
		}
		path := fmt.Sprintf("/team/%s-%s", name, uid)
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: volumes.VolumeName(uid), UID: uid + "x", ResourceVersion: fmt.Sprint(i + 200000),
				Labels:     map[string]string{"file_system_id": "fs-0123456789abcdef0"},
				Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "gnuthought.com/efs-stunnel", wellknown.AnnotationFileSystemID: "fs-0123456789abcdef0", wellknown.AnnotationPath: path},
				Finalizers: []string{wellknown.FinalizerVolume, "kubernetes.io/pv-protection"}},
			Spec: corev1.PersistentVolumeSpec{StorageClassName: class, AccessModes: modes(), Capacity: gibibytes("1Gi"), PersistentVolumeReclaimPolicy: "Delete",
				MountOptions: []string{"nfsvers=4.1", "rsize=1048576", "wsize=1048576", "hard", "timeo=600", "retrans=2", "noresvport", "port=20490"},
				ClaimRef:     &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team", Name: name, UID: uid},
				PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: path}}},
			Status: corev1.PersistentVolumeStatus{Phase: "Bound"},
		}
		b1, _ := pvc.Marshal()
		b2, _ := pv.Marshal()
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		_ = claim.Unmarshal(b1)
		_ = volume.Unmarshal(b2)
		if mode != "no" {
			_, _ = trim(claim)
			_, _ = trim(volume)
		}
		_ = c.Claims.GetStore().Add(claim)
		_ = c.Volumes.GetStore().Add(volume)
	}
	runtime.GC(); runtime.GC()
	runtime.ReadMemStats(&m1)
	t.Logf("mode %q: %.1f MiB, %d objects", mode, float64(m1.HeapAlloc-m0.HeapAlloc)/(1<<20), m1.HeapObjects-m0.HeapObjects)
	runtime.KeepAlive(c)
}
