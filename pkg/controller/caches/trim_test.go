package caches

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "data", Namespace: "team", UID: "1", ResourceVersion: "7",
		Labels:      map[string]string{wellknown.LabelFileSystemID: "fs-1"},
		Annotations: map[string]string{wellknown.AnnotationPath: "/team/data", wellknown.AnnotationFileSystemID: "fs-1"},
		Finalizers:  []string{wellknown.FinalizerVolume},
	}
}

func gibibytes(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}

func modes() []corev1.PersistentVolumeAccessMode {
	return []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// TestTrimKeepsWhatLoopsRead: memory that is shared must say what it said.
func TestTrimKeepsWhatLoopsRead(t *testing.T) {
	class := "shared"
	tests := map[string]runtime.Object{
		"claim": &corev1.PersistentVolumeClaim{
			ObjectMeta: metadata(),
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: modes(),
				Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("1Gi")},
			},
			Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: modes(), Capacity: gibibytes("1Gi")},
		},
		"claim that has grown": &corev1.PersistentVolumeClaim{
			Spec:   corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: gibibytes("2Gi")}},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: gibibytes("1Gi")},
		},
		"claim of nothing": &corev1.PersistentVolumeClaim{},
		"volume": &corev1.PersistentVolume{
			ObjectMeta: metadata(),
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: class, AccessModes: modes(), Capacity: gibibytes("1Gi"),
				MountOptions: []string{"hard", "port=20490"},
				ClaimRef:     &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data", UID: "1"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					NFS: &corev1.NFSVolumeSource{Server: wellknown.LoopbackAddress, Path: "/team/data"},
				},
			},
		},
		"volume with no path": &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}},
		}},
		"volume of another kind": &corev1.PersistentVolume{},
	}
	for name, object := range tests {
		t.Run(name, func(t *testing.T) {
			want := object.DeepCopyObject()
			trimmed, err := trim(object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, trimmed); diff != "" {
				t.Errorf("object mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrimDropsManagedFields(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}}}
	if _, err := trim(claim); err != nil || claim.ManagedFields != nil {
		t.Errorf("got %v, %v; want none", claim.ManagedFields, err)
	}
}
