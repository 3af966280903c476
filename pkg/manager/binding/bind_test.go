package binding

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

// pair returns a volume and the claim that it was made for, before the binder has done anything.
func pair() (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	class := "efs"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "c", UID: "2"}}
	claim.Spec.StorageClassName, claim.Spec.Resources.Requests = &class, storage("1Gi")
	claim.Status.Phase = corev1.ClaimPending
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: volumes.VolumeName("2"), UID: "1", Annotations: map[string]string{wellknown.AnnotationProvisionedBy: wellknown.DefaultProvisioner},
	}}
	volume.Spec.StorageClassName, volume.Spec.Capacity = class, storage("1Gi")
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: "c", UID: "2"}
	volume.Status.Phase = corev1.VolumePending
	return volume, claim
}

func TestOnlyWhatTheBinderWouldBindFits(t *testing.T) {
	gold := "gold"
	for name, edit := range map[string]func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim){
		"the user names it":         func(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = v.Name },
		"another volume":            func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "other" },
		"lost":                      func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost },
		"another claim of the name": func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.UID = "3" },
		"claim deleted": func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.DeletionTimestamp = &metav1.Time{}
		},
		"volume deleted": func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			v.DeletionTimestamp = &metav1.Time{}
		},
		"another class": func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { v.Spec.StorageClassName = "x" },
		"attributes": func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName = &gold
		},
		"too small":    func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { v.Spec.Capacity = storage("1Mi") },
		"made by hand": func(v *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { v.Name = "data" },
	} {
		volume, claim := pair()
		if !fits(volume, claim) {
			t.Fatal("the claim does not fit its volume")
		}
		if edit(volume, claim); fits(volume, claim) {
			t.Errorf("%s: fits", name)
		}
	}
}

func TestBoundClaimHasAllThatTheBinderWrites(t *testing.T) {
	volume, claim := pair()
	client := fake.NewClientset(volume, claim)
	c := newController(t, client)
	if err := c.bind(t.Context(), volume, claim); err != nil {
		t.Fatal(err)
	}
	bound, err := client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
	if err != nil || bound.Status.Phase != corev1.VolumeBound {
		t.Errorf("got phase %s, %v", bound.Status.Phase, err)
	}
	after, err := client.CoreV1().PersistentVolumeClaims("team").Get(t.Context(), "c", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.Status.Phase != corev1.ClaimBound || after.Spec.VolumeName != volume.Name || after.Status.Capacity.Storage().String() != "1Gi" ||
		len(after.Status.AccessModes) != 1 ||
		after.Annotations[wellknown.AnnotationBindCompleted] != "yes" || after.Annotations[wellknown.AnnotationBoundByController] != "yes" {
		t.Errorf("got %+v", after)
	}
	for _, action := range client.Actions() {
		patch, ok := action.(clienttesting.PatchAction)
		if ok && strings.Contains(string(patch.GetPatch()), "volumeName") && !strings.Contains(string(patch.GetPatch()), wellknown.AnnotationBindCompleted) {
			t.Errorf("the claim is half bound after %s", patch.GetPatch())
		}
	}
}

// TestClaimOfAVolumeThatIsGoneIsNotWritten, or the binder would mark it Lost.
func TestClaimOfAVolumeThatIsGoneIsNotWritten(t *testing.T) {
	volume, claim := pair()
	client := fake.NewClientset(claim)
	c := newController(t, client)
	if err := c.bind(t.Context(), volume, claim); err == nil {
		t.Error("there is no error")
	}
	for _, action := range client.Actions() {
		if action.GetResource().Resource == "persistentvolumeclaims" {
			t.Errorf("the claim is written: %v", action)
		}
	}
}
