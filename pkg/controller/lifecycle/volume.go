package lifecycle

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// planVolume decides about one volume that names the claim. Strangers' volumes and root volumes
// are none of ours here.
func (s State) planVolume(v Volume) (VolumePlan, bool) {
	plan := VolumePlan{Object: v.Object}
	switch {
	case v.Kind != volumes.Provisioned && v.Kind != volumes.Original:
		return VolumePlan{}, false
	case s.Targets.Gone[v.FileSystemID]:
		s.planGone(v, &plan)
	case v.Kind == volumes.Original:
		s.planOriginal(v, &plan)
	default:
		s.planProvisioned(v, &plan)
	}
	if plan.Delete || plan.RemoveFinalizer {
		plan.Spent = s.makersOf(v.Object.Name)
	}
	return plan, true
}

// makersOf are the Jobs whose outcomes still say that a volume is to be made.
func (s State) makersOf(volume string) []string {
	var jobs []string
	for _, a := range s.Attempts(volume) {
		if a.Unused && isProvisioning(a.Operation) {
			jobs = append(jobs, a.Job)
		}
	}
	return jobs
}

// planGone lets go of a volume whose file system no longer exists: nothing is left to clean.
func (s State) planGone(v Volume, plan *VolumePlan) {
	plan.RemoveFinalizer = slices.Contains(v.Object.Finalizers, wellknown.FinalizerVolume)
	plan.Gone = plan.RemoveFinalizer
	plan.Delete = v.NeedsCleanup(v.Claim)
}

// planOriginal adopts a volume of the original system while it is known whose the data is. An
// adoption that was begun for the claim of its claimRef is finished, although that claim went
// meanwhile: the owner is in the ledger, or may be, and nothing else would ever end it there.
//
//	newest adoption  bound to that claim  what is done
//	running          any                  nothing
//	done, not used   any                  adopted
//	maybe done       any                  asked for again
//	any other        yes                  asked for
//	any other        no                   told
func (s State) planOriginal(v Volume, plan *VolumePlan) {
	last, begun := s.newest(v.Object.Name, v.Object.CreationTimestamp.Time, func(o operations.Operation) bool {
		return isAdoption(o) && o.ClaimUID == string(v.ClaimUID)
	})
	adoptable := v.Problem == "" && v.Object.DeletionTimestamp == nil
	switch {
	case begun && last.running():
		plan.Running = last.Until
	case begun && last.Unused && last.done() && adoptable:
		plan.Adopt = true
	case begun && last.Unused && last.maybeDone() && adoptable,
		v.NeedsAdoption(v.Claim):
		operation := volumes.Adoption(v.Volume, s.Cluster)
		operation.Class = v.Object.Spec.StorageClassName
		// Whoever shared the directory until now goes on doing so.
		operation.ShareAcrossNamespaces, operation.ShareAcrossClusters = true, true
		s.want(plan, v, operation, last, begun)
	default:
		plan.Problem = unadoptable(v)
	}
}

// unadoptable is why an original volume stays as it is, or "" if nobody needs to know: it may only
// not be time yet.
func unadoptable(v Volume) string {
	switch {
	case v.Problem != "" && (v.Object.Status.Phase == corev1.VolumeBound || reclaims(v.Object)):
		return "the original provisioner made this volume, and it cannot be adopted, so nothing is removed when its claim goes: " + v.Problem
	case reclaims(v.Object):
		return "the original provisioner made this volume, and it was not seen bound since, so it is not known whose data is in its directory: nothing is removed. Delete the volume object, and the directory by hand if nobody needs it"
	}
	return ""
}

func isAdoption(o operations.Operation) bool { return o.Adopt }

func isCleanup(o operations.Operation) bool { return o.Kind == operations.Cleanup }

// reclaims says that the volume's owner expects it to be cleaned up.
func reclaims(object *corev1.PersistentVolume) bool {
	return object.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
		(object.Status.Phase == corev1.VolumeReleased || object.DeletionTimestamp != nil && object.Status.Phase != corev1.VolumeBound)
}

func (s State) planProvisioned(v Volume, plan *VolumePlan) {
	plan.AddFinalizer, plan.RemoveFinalizer = v.EditFinalizer()
	if plan.RemoveFinalizer && v.Policy == corev1.PersistentVolumeReclaimDelete {
		plan.Skipped = "no claim has the volume, so nobody has released " + v.Path
	}
	if v.Claim != nil {
		plan.Expand = volumes.Expand(v.Object, v.Claim)
	}
	if v.Problem != "" && reclaims(v.Object) {
		plan.Problem = "nothing is removed, because the volume is not what it says it is: " + v.Problem
	}
	if v.NeedsCleanup(v.Claim) {
		s.planCleanup(v, plan)
	}
}

// planCleanup takes the volume's directory away, then the volume.
//
//	newest cleanup            what is done
//	none, or of another life  asked for
//	running                   nothing
//	done                      volume deleted; told if the directory stays
//	any other                 while an unadopted volume has the directory: told, nothing else
//	blocked                   asked for at once, with those in the way
//	lost, failed              asked for after a wait; told if failed
func (s State) planCleanup(v Volume, plan *VolumePlan) {
	operation := volumes.Cleanup(v.Volume, s.Cluster)
	operation.LeaveToOthers, operation.KeepDirectory = v.Shared, v.Kept
	last, begun := s.newest(v.Object.Name, v.Object.CreationTimestamp.Time, isCleanup)
	switch {
	case begun && last.running():
		plan.Running = last.Until
	case begun && last.Unused && last.done() && last.Operation.Path == operation.Path:
		plan.Delete = true
		plan.Skipped = skipped(last.Result)
	case v.Unadopted != nil:
		plan.Problem = notAlone(v.Unadopted)
	case begun && last.Result.State == operations.Blocked:
		plan.Pending = &Pending{
			FileSystemID: v.FileSystemID, Operation: operation, Since: last.Began,
			Blockers: last.Result.Owners,
		}
	default:
		s.want(plan, v, operation, last, begun)
	}
}

// notAlone says what keeps a directory from being taken away although its last owner in the ledger
// leaves.
func notAlone(unadopted *corev1.PersistentVolume) string {
	return fmt.Sprintf("nothing is removed while volume %s of the original provisioner, which is not adopted, has its data in %s: "+
		"it is adopted while it is Bound to its claim. If nobody needs its data, delete that volume object; if the data is to stay, set the reclaim policy of this volume to Retain",
		unadopted.Name, unadopted.Spec.NFS.Path)
}

// skipped is why the directory of a volume that is done stays.
func skipped(r operations.Result) string {
	if r.Reason == "" {
		return ""
	}
	return r.Message
}

func (s State) want(plan *VolumePlan, v Volume, operation operations.Operation, last Attempt, begun bool) {
	if _, known := s.Targets.FileSystems[v.FileSystemID]; !known {
		if s.Targets.Known {
			plan.Problem = fmt.Sprintf("file system %s is not known (any more, or to this manager): nothing can be done on it", v.FileSystemID)
		}
		return
	}
	if !begun || !last.failed() && !last.lost() {
		plan.Pending = &Pending{FileSystemID: v.FileSystemID, Operation: operation, Since: since(plan.Object)}
		return
	}
	again, err := s.again(last, operation)
	if err != nil {
		plan.Problem = err.Error()
		return
	}
	plan.Pending, plan.Failed = &again, &last
}

func since(object *corev1.PersistentVolume) time.Time {
	if object.DeletionTimestamp != nil {
		return object.DeletionTimestamp.Time
	}
	return object.CreationTimestamp.Time
}
