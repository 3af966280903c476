package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// NeedsCleanup says whether a volume's directory is to be taken away. The claim is the one
// with the namespace and name of the volume's claimRef, nil if there is none.
//
// A volume that the ledger does not know is never cleaned, so that is asked of adopted ones only.
//
//	phase      volume is deleted   its claim              cleanup
//	Released   either              gone, or another uid   yes
//	Released   either              has another volume     yes, if made for it: it was never bound
//	Available  yes                 does not name it       yes: it was never bound
//	other      either              any                    no
func (v Volume) NeedsCleanup(claim *corev1.PersistentVolumeClaim) bool {
	if v.Kind != Provisioned || v.Problem != "" || v.Object.Spec.ClaimRef == nil {
		return false
	}
	if v.Policy != corev1.PersistentVolumeReclaimDelete || v.Object.Spec.ClaimRef.UID == "" {
		return false
	}
	own := claim != nil && claim.UID == v.Object.Spec.ClaimRef.UID
	switch v.Object.Status.Phase {
	case corev1.VolumeReleased:
		return !own || isSpare(v.Object, claim)
	case corev1.VolumePending, corev1.VolumeAvailable, "":
		return v.Object.DeletionTimestamp != nil && (!own || claim.Spec.VolumeName != v.Name)
	default:
		return false
	}
}

// isSpare says that a volume was made for its claim, which was bound to another one meanwhile. A
// claim's volumeName is never changed, so no pod can have come to this volume through the claim.
// Volumes of other names may have been another claim's before.
func isSpare(object *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return object.Name == VolumeName(claim.UID) && claim.Spec.VolumeName != "" && claim.Spec.VolumeName != object.Name
}

// EditFinalizer says what an edit of the reclaim policy asks for: with Delete, the volume
// object must wait for its directory's cleanup; otherwise nothing would ever end the wait.
func (v Volume) EditFinalizer() (add, remove bool) {
	if v.Kind != Provisioned {
		return false, false
	}
	has := slices.Contains(v.Object.Finalizers, wellknown.FinalizerVolume)
	if v.Policy != corev1.PersistentVolumeReclaimDelete || isNobodys(v.Object) {
		return false, has
	}
	// The cluster refuses new finalizers on what is being deleted.
	return !has && v.Object.DeletionTimestamp == nil && v.Problem == "", false
}

// isNobodys says that a volume is being deleted that no claim can have released: an
// administrator took its claimRef away to use it again. NeedsCleanup is never true for it.
func isNobodys(object *corev1.PersistentVolume) bool {
	ref := object.Spec.ClaimRef
	return object.DeletionTimestamp != nil && (ref == nil || ref.UID == "")
}

func finalizers(policy corev1.PersistentVolumeReclaimPolicy) []string {
	if policy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	return []string{wellknown.FinalizerVolume}
}
