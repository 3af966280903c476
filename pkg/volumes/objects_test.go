package volumes_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	provisioner = wellknown.DefaultProvisioner
	claimUID    = "01234567-89ab-cdef-0123-456789abcdef"
	cluster     = "c1c1c1c1-0000-4000-8000-000000000001"
)

// newClaim is one that is ours to provision, but for what the edits change.
func newClaim(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "efs"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "team",
			Name:        "data",
			UID:         claimUID,
			Annotations: map[string]string{wellknown.AnnotationStorageProvisioner: provisioner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, edit := range edits {
		edit(claim)
	}
	return claim
}

func selecting(labels map[string]string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels} }
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
}

func newClass(parameters map[string]string, edits ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "efs"},
		Provisioner: provisioner,
		Parameters:  parameters,
	}
	for _, edit := range edits {
		edit(class)
	}
	return class
}

func waitForFirstConsumer(class *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class.VolumeBindingMode = &mode
}

func parseClass(t testing.TB, object *storagev1.StorageClass) volumes.Class {
	t.Helper()
	class, err := volumes.ParseClass(object)
	if err != nil {
		t.Fatalf("the class is refused: %v", err)
	}
	return class
}

func parseClaim(t testing.TB, object *corev1.PersistentVolumeClaim, class volumes.Class) volumes.Claim {
	t.Helper()
	claim, err := volumes.ParseClaim(object, class)
	if err != nil {
		t.Fatalf("the claim is refused: %v", err)
	}
	return claim
}

func begin(t testing.TB, claim volumes.Claim, class volumes.Class, choice volumes.Choice) operations.Operation {
	t.Helper()
	operation, err := volumes.Begin(claim, class, choice, cluster)
	if err != nil {
		t.Fatalf("the operation is refused: %v", err)
	}
	return operation
}

// wantRefusal compares a refusal's whole text; "" is none.
func wantRefusal(t testing.TB, err error, want string) {
	t.Helper()
	if want == "" && err == nil {
		return
	}
	var refusal volumes.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("got error %v, not a Refusal; want %q", err, want)
	}
	if string(refusal) != want {
		t.Errorf("refused with\n%s\nnot\n%s", refusal, want)
	}
}
