package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Expansion is the next step of expanding a bound claim; nil fields are not written.
type Expansion struct {
	Volume *resource.Quantity // the volume's new capacity
	Claim  *resource.Quantity // the claim's new status.capacity, once the volume has it
}

// Expand compares a claim with the volume that it is bound to. The cluster lets a request grow
// only where the class allows it, and EFS grows by itself, so only numbers are to be written.
func Expand(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) Expansion {
	if !isBound(volume, claim) {
		return Expansion{}
	}
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if volume.Spec.Capacity.Storage().Cmp(wanted) < 0 {
		return Expansion{Volume: &wanted}
	}
	if claim.Status.Capacity.Storage().Cmp(wanted) < 0 || isMarkedResizing(claim) {
		return Expansion{Claim: volume.Spec.Capacity.Storage()}
	}
	return Expansion{}
}

func isBound(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && claim.Spec.VolumeName == volume.Name && claim.Status.Phase == corev1.ClaimBound
}

// isMarkedResizing reports whether the claim's status shows a resize that is under way or failed.
func isMarkedResizing(claim *corev1.PersistentVolumeClaim) bool {
	_, marked := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	return marked || slices.ContainsFunc(claim.Status.Conditions, isResizeCondition)
}

func isResizeCondition(c corev1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}

// ExpandedStatus changes a claim's status, by strategic merge, to what external-resizer leaves of a
// claim that has grown: both sizes, and nothing of a resize under way. allocatedResources are the
// request, since quotas count them.
func ExpandedStatus(claim *corev1.PersistentVolumeClaim, capacity resource.Quantity) map[string]any {
	size := func(q resource.Quantity) map[string]any {
		return map[string]any{string(corev1.ResourceStorage): q.String()}
	}
	status := map[string]any{
		"capacity":           size(capacity),
		"allocatedResources": size(claim.Spec.Resources.Requests[corev1.ResourceStorage]),
	}
	if len(claim.Status.AllocatedResourceStatuses) > 0 {
		status["allocatedResourceStatuses"] = map[string]any{string(corev1.ResourceStorage): nil}
	}
	var conditions []any
	for _, c := range claim.Status.Conditions {
		if isResizeCondition(c) {
			conditions = append(conditions, map[string]any{"type": c.Type, "$patch": "delete"})
		}
	}
	if len(conditions) > 0 {
		status["conditions"] = conditions
	}
	return status
}
