package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

type volumePlanner struct {
	State
	*Plan
	volume  Volume
	verdict Verdict
	inJob   bool // a Job carries out an operation for the volume
	deletes bool // the volume is deleted
}

// planVolume does nothing for foreign volumes and root volumes.
func (s State) planVolume(v Volume, plan *Plan) {
	p := volumePlanner{State: s, Plan: plan, volume: v}
	switch {
	case v.Kind != volumes.Provisioned && v.Kind != volumes.Original:
		return
	case s.Targets.Gone[v.FileSystemID]:
		p.withoutFileSystem()
	case v.Kind == volumes.Original:
		p.adopt()
	default:
		p.maintain()
	}
	p.judge()
}

func (p *volumePlanner) await(running Attempt) {
	p.inJob = true
	p.awaitEnd(running)
}

func (p *volumePlanner) warn(cause, topic, message string) {
	p.verdict = Verdict{cause, message}
	p.add(Warn{p.volume.Object, EventOf(cause), topic, message, cause})
}

// reportProblem tells the volume that it can be neither cleaned nor adopted; "" is nothing.
func (p *volumePlanner) reportProblem(cause, problem string) {
	if problem != "" {
		p.warn(cause, "problem", problem)
		p.Unsettled = true
	}
}

// reportSkipped reports that the directory of a deleted volume stays, and why. It is no warning where another
// owner has the directory: the deletion of one of several owners ends so.
func (p *volumePlanner) reportSkipped(reason operations.Reason, why string) {
	event := Warn{p.volume.Object, wellknown.EventVolumeDeleteSkipped, "", "volume deleted, directory kept: " + why, ""}
	if reason == operations.StillOwned {
		p.add(Inform(event))
		return
	}
	p.add(event)
}

func (p *volumePlanner) makerJobs() []string {
	return p.jobsOf(p.volume.Name, func(Attempt) bool { return true })
}

func (p *volumePlanner) withoutFileSystem() {
	object, hasFinalizer := p.volume.Object, slices.Contains(p.volume.Object.Finalizers, wellknown.FinalizerVolume)
	if hasFinalizer {
		p.add(Warn{object, wellknown.EventFileSystemGone, "", fmt.Sprintf("file system %s no longer exists, so there is nothing to clean up: the volume may go", p.volume.FileSystemID), ""})
	}
	switch {
	case p.volume.NeedsCleanup(p.volume.Claim):
		p.add(DeleteVolume{object, p.makerJobs()})
		p.deletes = true
	case hasFinalizer:
		p.add(RemoveFinalizer{object, p.makerJobs()})
	}
}

// adopt makes a volume of the original system ours while it is known whose the data is. An adoption
// that was begun for the claim of its claimRef is finished, although that claim was deleted meanwhile:
// the owner is in the ledger, or may be, and nothing else would ever remove it there.
//
//	newest adoption  bound to that claim  what is done
//	running          any                  nothing
//	done, not used   any                  adopted
//	maybe done       any                  asked for again
//	any other        yes                  asked for
//	any other        no                   reported
func (p *volumePlanner) adopt() {
	v := p.volume
	last := p.newest(v.Name, v.Object.CreationTimestamp.Time, func(o operations.Operation) bool {
		return o.Adopt && o.ClaimUID == string(v.ClaimUID)
	})
	adoptable := v.Problem == "" && v.Object.DeletionTimestamp == nil
	switch {
	case last.running():
		p.await(last)
	case last.Unused && last.done() && adoptable:
		p.add(AdoptVolume{v.Object})
	case last.Unused && last.maybeDone() && adoptable, v.NeedsAdoption(v.Claim):
		p.enter(volumes.Adoption(v.Volume, p.Cluster), last, "enter the volume's owner on the file system")
	default:
		p.reportProblem(status.NotAdopted, v.unadoptable())
	}
}

// unadoptable returns why an original volume cannot be adopted, or "" if it may be adopted once it is bound.
func (v Volume) unadoptable() string {
	switch reclaims := v.reclaims(); {
	case v.Problem != "" && (v.Object.Status.Phase == corev1.VolumeBound || reclaims):
		return "the original provisioner made this volume, and it cannot be adopted, so nothing is removed when its claim goes: " + v.Problem
	case reclaims:
		return "the original provisioner made this volume, and it was not seen bound since, so it is not known whose data is in its directory: nothing is removed. Delete the volume object, and the directory by hand if it is not needed"
	}
	return ""
}

// reclaims reports whether the volume's owner expects its cleanup.
func (v Volume) reclaims() bool {
	phase := v.Object.Status.Phase
	return v.Policy == corev1.PersistentVolumeReclaimDelete &&
		(phase == corev1.VolumeReleased || v.Object.DeletionTimestamp != nil && phase != corev1.VolumeBound)
}

// maintain cleans a volume up once it is released; until then it keeps finalizer and size up to date.
func (p *volumePlanner) maintain() {
	v := p.volume
	if v.Problem != "" && v.reclaims() {
		p.reportProblem(status.CleanupFailed, "nothing is removed, because the volume is not what it says it is: "+v.Problem)
	}
	if !v.NeedsCleanup(v.Claim) {
		p.checkPoint()
		p.takeBack()
	} else if p.cleanUp(); p.deletes {
		return
	}
	switch add, remove := v.EditFinalizer(); {
	case remove:
		if v.Policy == corev1.PersistentVolumeReclaimDelete {
			p.reportSkipped("", "no claim has the volume, so no claim has released "+v.Path)
		}
		p.add(RemoveFinalizer{v.Object, p.makerJobs()})
	case add:
		p.add(AddFinalizer{v.Object})
	}
	p.give()
	if p.limit() {
		p.expand()
	}
}

// give plans to enter into the ledger the claim to which an administrator has given the volume: until then, what its
// pods write is shared with the namespace that had the volume before. Where the ledger has another owner of the
// volume's name, as it has after a restore in another cluster, it is left as it is.
//
//	newest adoption or gift         what is done
//	running                         nothing
//	gift to that claim, done        noted
//	gift to that claim, name taken  noted
//	gift to that claim, any other   asked for again
//	none, or for another claim      asked for
func (p *volumePlanner) give() {
	v := p.volume
	if !v.IsGiven(v.Claim) {
		return
	}
	last := p.newest(v.Name, v.Object.CreationTimestamp.Time, func(o operations.Operation) bool { return o.Adopt })
	if last.running() {
		p.await(last)
		return
	}
	if last.Operation.GivenTo != string(v.Claim.UID) {
		last = Attempt{}
	}
	if last.done() || last.failed() && last.Result.Reason == operations.VolumeNameTaken {
		p.add(Annotate{v.Object, map[string]any{wellknown.AnnotationGivenTo: string(v.Claim.UID)}, wellknown.EventVolumeEntryFailed})
		return
	}
	p.enter(volumes.Gift(v.Volume, p.Cluster), last, "enter the volume's new claim on the file system")
}

// cleanUp removes the volume's directory, then the volume.
//
//	newest cleanup            what is done
//	none, or of another life  asked for
//	running                   nothing
//	done                      access point deleted, then the volume; reported if the directory stays
//	any other                 while an unadopted volume has the directory: reported, nothing else
//	blocked                   asked for at once, with those in the way
//	lost, failed              asked for after a wait; reported if failed
func (p *volumePlanner) cleanUp() {
	v := p.volume
	operation := volumes.Cleanup(v.Volume, p.Cluster)
	operation.LeaveToOthers, operation.KeepDirectory = v.Shared, v.Kept
	last := p.newest(v.Name, v.Object.CreationTimestamp.Time, isCleanup)
	switch {
	case last.running():
		p.await(last)
	case last.Unused && last.done() && last.Operation.Path == operation.Path:
		if !p.isPointDeleted() {
			return
		}
		if last.Result.Reason != "" {
			p.reportSkipped(last.Result.Reason, last.Result.Message)
		}
		p.add(DeleteVolume{v.Object, p.makerJobs()})
		p.deletes = true
	case v.Unadopted != nil:
		p.reportProblem(status.NotAdopted, notAlone(v.Unadopted))
	case last.Result.State == operations.Blocked:
		p.wait(Pending{FileSystemID: v.FileSystemID, Operation: operation, Since: last.Began, Blockers: last.Result.Owners})
	default:
		p.schedule(operation, last, "remove the directory")
	}
}

func notAlone(unadopted *corev1.PersistentVolume) string {
	return fmt.Sprintf("nothing is removed while volume %s of the original provisioner, which is not adopted, has its data in %s: "+
		"it is adopted while it is Bound to its claim. If its data is not needed, delete that volume object; if the data is to stay, set the reclaim policy of this volume to Retain",
		unadopted.Name, unadopted.Spec.NFS.Path)
}

// enter plans the next try of an operation that enters an owner of a directory that the volume has already: those who
// share the directory now go on sharing it.
func (p *volumePlanner) enter(operation operations.Operation, last Attempt, doing string) {
	operation.Class = p.volume.Object.Spec.StorageClassName
	operation.ShareAcrossNamespaces, operation.ShareAcrossClusters = true, true
	p.schedule(operation, last, doing)
}

// schedule plans the next try of an operation; doing names its work in events.
func (p *volumePlanner) schedule(operation operations.Operation, last Attempt, doing string) {
	id, cause := p.volume.FileSystemID, FailureOf(operation)
	if _, known := p.Targets.FileSystems[id]; !known {
		if p.Targets.Known {
			p.reportProblem(cause, fmt.Sprintf("file system %s is not known (any more, or to this manager): nothing can be done on it", id))
		}
		return
	}
	if !last.isUnsuccessful() {
		p.wait(Pending{FileSystemID: id, Operation: operation, Since: since(p.volume.Object)})
		return
	}
	p.wait(p.retry(Pending{FileSystemID: last.FileSystemID, Operation: operation, Since: last.Began}, last))
	if !last.stopped() {
		p.warn(cause, last.Job, fmt.Sprintf("Job %s could not %s: %s", last.Job, doing, last.Why()))
	}
}

// FailureOf returns the cause that a volume has while an operation fails.
func FailureOf(o operations.Operation) string {
	if o.Adopt {
		return status.EntryFailed
	}
	return status.CleanupFailed
}

// EventOf returns the reason of the warnings on a volume that has a cause.
func EventOf(cause string) string {
	return cmp.Or(map[string]string{
		status.EntryFailed: wellknown.EventVolumeEntryFailed, status.AccessPointMissing: wellknown.EventAccessPointMissing,
	}[cause], wellknown.EventVolumeFailedDelete)
}

func since(object *corev1.PersistentVolume) time.Time {
	return cmp.Or(object.DeletionTimestamp, &object.CreationTimestamp).Time
}

// takesBack reports whether an operation makes a volume an owner again after its cleanup had begun.
func takesBack(o operations.Operation) bool {
	return o.Adopt && !o.Made && o.GivenTo == "" && o.Size == 0
}

// takeBack makes a volume an owner again whose cleanup has begun and is called off: the volume is bound again, or
// its policy is Retain. Its data is safe before that, too, but no claim can be a copy of it, and no rebuild makes
// its volume again.
//
//	newest cleanup, or taking back    what is done
//	none, or done                     nothing
//	running                           nothing
//	a cleanup that is not done        asked for
//	found no directory                nothing: the cleanup was done
//	lost, failed                      asked for after a wait, and reported
func (p *volumePlanner) takeBack() {
	v := p.volume
	if v.IsGiven(v.Claim) {
		return // the gift takes it back, too
	}
	last := p.newest(v.Name, v.Object.CreationTimestamp.Time, func(o operations.Operation) bool { return isCleanup(o) || takesBack(o) || o.GivenTo != "" })
	switch {
	case last.Job == "", last.done(), last.foundNothing(), v.Problem != "", v.Object.DeletionTimestamp != nil:
		return
	case last.running():
		p.await(last)
		return
	case isCleanup(last.Operation):
		last = Attempt{}
	}
	operation := volumes.Adoption(v.Volume, p.Cluster)
	operation.Made = false // it keeps the right that its entry has
	operation.Reads = volumes.IsReadOnly(v.Object.Spec.AccessModes)
	p.enter(operation, last, "take the cleanup back")
}

// foundNothing reports whether there was no directory that the volume could have back.
func (a Attempt) foundNothing() bool {
	return takesBack(a.Operation) && a.failed() && a.Result.Reason == operations.NotFound
}
