package decide

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// sizeOn returns the size in the ledger of a claim's owner: EFS has no limits, and a reader writes nothing.
func (s State) sizeOn(fileSystemID string, operation operations.Operation) int64 {
	if !s.Targets.Servers[fileSystemID] || operation.Reads {
		return 0
	}
	return s.Claim.Spec.Resources.Requests.Storage().Value()
}

// limit plans to enter the size that a claim has grown to into the ledger of a server of one's own, and reports whether
// the volume may grow: by then, the server lets its pods write as much.
//
//	newest entry of that size       what is done
//	running                         nothing
//	done                            noted
//	found no directory, name taken  noted: no pod can write there, or another cluster's do
//	any other                       asked for again
//	none                            asked for, unless the volume waits for another operation
func (p *volumePlanner) limit() (entered bool) {
	v := p.volume
	wanted := requestedSize(v)
	if wanted == 0 || recordedSize(v.Object) == wanted {
		return true
	}
	last := p.newest(v.Name, v.Object.CreationTimestamp.Time, func(o operations.Operation) bool { return isLimit(o) && o.Size == wanted })
	isVain := last.failed() && (last.Result.Reason == operations.NotFound || last.Result.Reason == operations.VolumeNameTaken)
	switch {
	case last.running():
		p.await(last)
	case last.done(), isVain:
		size := map[string]any{wellknown.AnnotationRecordedSize: strconv.FormatInt(wanted, 10)}
		p.add(Annotate{v.Object, size, wellknown.EventVolumeEntryFailed})
	case !p.Targets.Servers[v.FileSystemID]:
		return true
	case !p.inJob && !slices.ContainsFunc(p.Pending, func(other Pending) bool { return other.Operation.Volume == v.Name }):
		operation := volumes.Adoption(v.Volume, p.Cluster)
		operation.Made, operation.Size = false, wanted
		p.enter(operation, last, "enter the volume's size on the file system")
		p.reportGrowth(last)
	}
	return false
}

// reportGrowth tells the claim why it has not grown: its users do not look at the volume.
func (p *volumePlanner) reportGrowth(last Attempt) {
	v := p.volume
	wanted, has := v.Claim.Spec.Resources.Requests.Storage(), v.Object.Spec.Capacity.Storage()
	if wanted.Cmp(*has) > 0 && last.isUnsuccessful() && !last.stopped() {
		p.add(Warn{v.Claim, wellknown.EventVolumeResizeFailed, last.Job, fmt.Sprintf(
			"volume %s keeps %s: Job %s could not enter %s on its server, which is tried again: %s", v.Name, has, last.Job, wanted, last.Why()), ""})
	}
}

func isLimit(o operations.Operation) bool { return o.Adopt && o.Size > 0 }

// requestedSize returns the size in bytes that a bound claim and its volume have or want, 0 for volumes that nobody
// writes to through a claim.
func requestedSize(v Volume) int64 {
	if v.Kind != volumes.Provisioned || v.Problem != "" || v.Claim == nil || !isBound(v.Object, v.Claim) || v.IsGiven(v.Claim) ||
		v.Object.DeletionTimestamp != nil || volumes.IsReadOnly(v.Object.Spec.AccessModes) {
		return 0
	}
	return max(v.Claim.Spec.Resources.Requests.Storage().Value(), v.Object.Spec.Capacity.Storage().Value())
}

// recordedSize returns the size that the ledger has of a volume, 0 if that is unknown.
func recordedSize(object *corev1.PersistentVolume) int64 {
	if object == nil {
		return 0
	}
	size, _ := strconv.ParseInt(object.Annotations[wellknown.AnnotationRecordedSize], 10, 64)
	return size
}

// expand plans the next number to be written for a bound claim that has grown: the volume's capacity, and then the
// claim's. The cluster lets a request grow only where the class allows it, and EFS grows by itself.
func (p *volumePlanner) expand() {
	v := p.volume
	if v.Claim == nil || !isBound(v.Object, v.Claim) {
		return
	}
	switch wanted, has := v.Claim.Spec.Resources.Requests.Storage(), v.Object.Spec.Capacity.Storage(); {
	case has.Cmp(*wanted) < 0:
		p.add(ExpandVolume{v.Object, v.Claim, *wanted})
	case v.Claim.Status.Capacity.Storage().Cmp(*wanted) < 0 || isMarkedResizing(v.Claim):
		p.add(ExpandClaim{v.Object, v.Claim, *has})
	}
}

func isBound(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && claim.Spec.VolumeName == volume.Name && claim.Status.Phase == corev1.ClaimBound
}

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

// ExpandedStatus changes a claim's status, by strategic merge, to what external-resizer leaves of one that has grown:
// both sizes, and nothing of a resize under way. allocatedResources are the request, since quotas count them.
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
