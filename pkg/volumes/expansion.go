package volumes

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Expansion is the next step of growing a bound claim, nil where nothing is to be done.
type Expansion struct {
	Volume *resource.Quantity // the volume's new capacity
	Claim  *resource.Quantity // the claim's new status.capacity, once the volume has it
}

// Expand compares a claim with the volume that it is bound to. The cluster lets a request grow
// only where the class allows it, and EFS grows by itself, so only numbers are to be written.
func Expand(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) Expansion {
	ref := volume.Spec.ClaimRef
	if ref == nil || ref.UID != claim.UID || claim.Spec.VolumeName != volume.Name || claim.Status.Phase != corev1.ClaimBound {
		return Expansion{}
	}
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if volume.Spec.Capacity.Storage().Cmp(wanted) < 0 {
		return Expansion{Volume: &wanted}
	}
	if claim.Status.Capacity.Storage().Cmp(wanted) < 0 {
		return Expansion{Claim: volume.Spec.Capacity.Storage()}
	}
	return Expansion{}
}
