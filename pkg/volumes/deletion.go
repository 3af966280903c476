package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// NeedsCleanup reports whether a volume's directory is to be removed. The claim is the one with the namespace and
// name of the volume's claimRef, nil if there is none. Volumes that are not in the ledger are never cleaned up.
//
//	phase      volume is deleted   its claim              cleanup
//	Released   either              gone, or another uid   yes
//	Released   either              has another volume     yes, if made for it: it was never bound
//	Available  yes                 does not name it       yes: it was never bound
//	other      either              any                    no
func (v Volume) NeedsCleanup(claim *corev1.PersistentVolumeClaim) bool {
	if v.Kind != Provisioned || v.Problem != "" || v.Policy != corev1.PersistentVolumeReclaimDelete {
		return false
	}
	ref := v.Object.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return false
	}
	own := claim != nil && claim.UID == ref.UID
	switch v.Object.Status.Phase {
	case corev1.VolumeReleased:
		return !own || isSpare(v.Object, claim)
	case corev1.VolumePending, corev1.VolumeAvailable, "":
		return v.Object.DeletionTimestamp != nil && (!own || claim.Spec.VolumeName != v.Name)
	default:
		return false
	}
}

// isSpare reports whether a volume was made for its claim, and the claim was bound to another volume. A claim's
// volumeName never changes, so no pod can have used this volume through the claim. Volumes with other names may
// have been bound to another claim before.
func isSpare(object *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return object.Name == VolumeName(claim.UID) && claim.Spec.VolumeName != "" && claim.Spec.VolumeName != object.Name
}

// EditFinalizer reports whether the finalizer must follow an edit of the reclaim policy: with Delete, it keeps the
// volume until the cleanup of its directory; otherwise there is no cleanup that removes it.
func (v Volume) EditFinalizer() (add, remove bool) {
	if v.Kind != Provisioned {
		return false, false
	}
	has := slices.Contains(v.Object.Finalizers, wellknown.FinalizerVolume)
	ref, deleted := v.Object.Spec.ClaimRef, v.Object.DeletionTimestamp != nil
	// An administrator removed the claimRef, so that NeedsCleanup never becomes true.
	unclaimed := deleted && (ref == nil || ref.UID == "")
	if v.Policy != corev1.PersistentVolumeReclaimDelete || unclaimed {
		return false, has
	}
	// The apiserver refuses new finalizers on an object that is being deleted.
	return !has && !deleted && v.Problem == "", false
}

func finalizers(policy corev1.PersistentVolumeReclaimPolicy) []string {
	if policy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	return []string{wellknown.FinalizerVolume}
}
