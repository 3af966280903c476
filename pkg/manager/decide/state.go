// Package decide decides what is to be done next for one claim and the volumes
// that were made for it, from the claim's creation to the deletion of the last
// volume. Decide is a pure function from a State to a Plan: changes, which the
// claims loop applies, and pending operations, which the jobs loop puts into mount
// Jobs. The outcomes of those are part of the next State.
//
//	claim ──▶ setup ──▶ volume ──▶ bound … released ──▶ cleanup ──▶ volume deleted
//	          (mount Job)                              (mount Job)
package decide

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Settings are the same for every claim.
type Settings struct {
	Provisioner string
	// Cluster is the uid of the namespace kube-system.
	Cluster string
	// Backoff is the wait after a first failure; it doubles from there, up to 16 times.
	Backoff time.Duration
	// Threshold is the number of failed setups after which a claim is given up; 0 is never.
	Threshold int
	// Aliases are, for a file system, the ids whose marker and ledger it may carry.
	Aliases map[string][]string
}

// State is the observed state of one claim.
type State struct {
	Settings
	Now     time.Time
	Targets targets.Snapshot

	UID   types.UID
	Claim *corev1.PersistentVolumeClaim // nil when it is deleted
	Class *storagev1.StorageClass       // the claim's, nil while there is none
	// NodeZone is the zone of the node that the scheduler chose, "" if it has none.
	NodeZone string
	// Volumes are those that name the claim.
	Volumes []Volume
	// Named returns the claim of a namespace and a name, and its volume, as far as they are known.
	Named func(namespace, name string) volumes.Source
	// ClassNamed returns a class, nil if there is none.
	ClassNamed func(name string) *storagev1.StorageClass
	// Holders are the file systems on which a path is a volume's, or is being made one.
	Holders func(path string) []string
	// InUse says that another volume has a path on a file system and is neither released nor being
	// deleted, or that another claim's setup makes it one.
	InUse func(fileSystemID, path string) bool
	// Attempts are what mount Jobs did for a volume, newest first.
	Attempts func(volume string) []Attempt
	// Points are the access points of volumes, as this replica has observed and requested them.
	Points Points
}

// Points answers from memory. A problem is why the latest try failed; tries go on by themselves.
type Points interface {
	// Made returns the access point that was made for a volume, "" while there is none.
	Made(volume string) (id string, problem Verdict)
	// GiveUp ends the creation of an access point, and reports whether it is certain that there is none.
	GiveUp(point volumes.Point) (none bool)
	Deleted(id string) (deleted bool, problem Verdict)
	// GID returns the gid that is reserved for a volume's access point, or what it waits for.
	GID(fileSystemID, volume string, lowest, highest int) (gid int, wait string)
	// IsMissing reports whether EFS lists the access points of a file system, and not this one.
	IsMissing(fileSystemID, id string) bool
}

// Volume is one that names the claim.
type Volume struct {
	volumes.Volume
	// Claim is the one with the namespace and name of the volume's claimRef, nil if there is none.
	Claim *corev1.PersistentVolumeClaim
	// Shared says that another volume object of this cluster has the same directory, in whatever
	// phase it is. Each of them leaves the directory to the others, and the last one removes it.
	Shared bool
	// Kept says that one of these is not to be cleaned up: it is in use, or its policy is Retain.
	Kept bool
	// PointShared says that another volume object has the same access point.
	PointShared bool
	// Unadopted is a volume of the original system with the same directory, or with one above or
	// inside it, that the ledger does not know yet; nil if there is none.
	Unadopted *corev1.PersistentVolume
}

// Attempt is one operation in one batch of one mount Job, and what became of it.
type Attempt struct {
	Job          string
	JobNumber    int // of those of its file system
	Batch        int // of those of its Job
	BatchSize    int // its number of operations
	FileSystemID string
	Began, Ended time.Time // Ended is zero while it runs, and where it is unknown
	// OverSince is when this replica first saw that it had ended, by its own count of the time since
	// and on the clock of State.Now; zero if it did not.
	OverSince time.Time
	Until     time.Time // when it must be observed again, while it runs
	State     mountjobs.State
	Operation operations.Operation
	Result    operations.Result
	Message   string // of the Job, where its result says nothing
	// Unused says that its outcome was not used yet. One that was used still counts as a failure, but
	// no volume is created or deleted because of it.
	Unused bool
}

func (a Attempt) running() bool { return a.State == mountjobs.Running }

// lost reports whether the result of the operation is unknown, or the operation was not tried: its Job was
// stopped, or the whole batch was refused, for example on another file system.
func (a Attempt) lost() bool {
	return !a.running() && (a.Result.State == operations.Unknown || a.Result.State == operations.NotDone)
}

// stopped reports whether the operation was not begun because its Job had to end, which is no failure.
func (a Attempt) stopped() bool {
	return a.Result.State == operations.NotDone && a.Result.Reason == operations.Stopped
}

func (a Attempt) done() bool { return a.Result.State == operations.Done }

// maybeDone reports whether the operation may have been done without a report of it.
func (a Attempt) maybeDone() bool {
	return a.lost() || a.failed() && a.Result.Reason == operations.IOError
}

func (a Attempt) failed() bool { return a.Result.State == operations.Failed }

// isUnsuccessful returns false for the zero Attempt, which stands for none.
func (a Attempt) isUnsuccessful() bool { return a.Job != "" && (a.failed() || a.lost()) }

// Why returns, for people, the reason for which an attempt did not succeed.
func (a Attempt) Why() string {
	why := cmp.Or(a.Result.Message, a.Message, "its report does not say what became of it")
	if _, ok := volumes.PointOf(a.Operation); ok && a.Result.Reason == operations.OwnedByOtherNamespace {
		why += "; a class with provisioningMode cannot do that: write ${.PVC.namespace} into its subPathPattern, or use a class without provisioningMode"
	}
	return why
}

// IsUsed reports whether the manager has acted on the result of an attempt whose Job has ended, so that the Job
// may be forgotten.
//
//	kind             result   used
//	any              any      when superseded, or marked
//	setup            any      when its claim is gone and its policy is Retain
//	setup, restore   done     when there is a volume
//	                 lost     the same: a worker had reported it to an earlier leader; or when it is tried again
//	                 maybe    the same: if its claim is gone, it is tried again
//	                 failed   yes: it counts as long as the Job is there
//	clone            not done when there is a volume: nothing but its Job knows what was copied for a claim that
//	                          is deleted; the same when that is to be removed
//	gift             any      when the volume is noted as given to that claim, or is not bound to it any more
//	size             done     when it is noted, or another one is wanted
//	adoption         done     when the volume is adopted, gone, or another claim's
//	                 maybe    the same, unless it is tried again
//	cleanup          done     when the volume is gone, or wants no cleanup any more
//	                 not done when the volume is gone: it may be called off at any time
//	taking back      not done the same, or when there is nothing to take back
//	all others       any      yes: they are asked for again by what is there
func (a Attempt) IsUsed(t Traces) bool {
	switch {
	case a.running():
		return false
	case t.Superseded, !a.Unused:
		return true
	case a.Operation.Kind == operations.Clone && !a.done():
		return t.Volume.Object != nil
	case t.Abandoned && isLeft(a.Operation):
		return true
	case isProvisioning(a.Operation):
		return a.failed() && !a.maybeDone() || t.Volume.Object != nil
	case a.Operation.GivenTo != "":
		return !t.Volume.IsGiven(t.Claim) || string(t.Claim.UID) != a.Operation.GivenTo
	case isLimit(a.Operation):
		wanted := requestedSize(Volume{Volume: t.Volume, Claim: t.Claim})
		return !a.done() || wanted != a.Operation.Size || recordedSize(t.Volume.Object) == wanted
	case a.Operation.Adopt && !takesBack(a.Operation) && (a.done() || a.maybeDone()):
		return t.Volume.Kind != volumes.Original || string(t.Volume.ClaimUID) != a.Operation.ClaimUID
	case a.Operation.Kind == operations.Cleanup && a.done():
		return !t.Volume.NeedsCleanup(t.Claim)
	case a.Operation.Kind == operations.Cleanup, takesBack(a.Operation) && !a.done() && !a.foundNothing():
		return t.Volume.Object == nil
	}
	return true
}

// Traces are the objects that an attempt is compared with, beside its Job.
type Traces struct {
	// Volume is the one that the attempt was for, the zero Volume while there is none, and Claim the
	// one with the namespace and name of its claimRef.
	Volume volumes.Volume
	Claim  *corev1.PersistentVolumeClaim
	// Abandoned says that the claim that the attempt was begun for is gone.
	Abandoned bool
	// Superseded says that a newer Job has an operation for the volume.
	Superseded bool
}

// isLeft reports whether an operation whose claim is gone, and whose volume does not exist, needs no volume: a
// setup or a copy with policy Retain. Its volume could have been made and deleted without us, so a volume that was
// never created looks like one that was deleted on purpose. A restore is not among them: it has brought back data,
// which needs a volume to be found by.
func isLeft(o operations.Operation) bool {
	return (o.Kind == operations.Setup && !o.Adopt || o.Copies()) && volumes.ReclaimPolicyOf(o) == corev1.PersistentVolumeReclaimRetain
}

// FillsTrash reports whether an attempt has left something to sweep, or may have: if a Job's pod was deleted with
// its report, nothing else shows that its trash is there.
func FillsTrash(a Attempt) bool {
	moved := a.done() && (a.Result.Reason == "" || a.Operation.Abandon)
	return isCleanup(a.Operation) && (moved || a.maybeDone())
}
