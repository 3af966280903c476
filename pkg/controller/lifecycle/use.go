package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// IsUsed says whether an attempt of a Job that has ended is history: whatever should follow from
// it has, so the Job may be forgotten.
//
//	kind             result   used
//	any              any      when superseded, or marked
//	setup            any      when its claim is gone and its policy is Retain
//	setup, restore   done     when there is a volume
//	                 lost     not before it is tried again
//	                 failed   yes: it counts as long as the Job is there
//	adoption         done     when the volume is adopted, gone, or another claim's
//	                 maybe    the same, unless it is tried again
//	cleanup          done     when the volume is gone, or wants no cleanup any more
//	all others       any      yes: they are asked for again by what is there
func (a Attempt) IsUsed(t Traces) bool {
	switch {
	case a.running():
		return false
	case t.Superseded, !a.Unused, t.Abandoned && isLeft(a.Operation):
		return true
	case isProvisioning(a.Operation):
		return a.failed() || a.done() && t.Volume.Object != nil
	case a.Operation.Adopt && (a.done() || a.maybeDone()):
		return t.Volume.Kind != volumes.Original || string(t.Volume.ClaimUID) != a.Operation.ClaimUID
	case isCleanup(a.Operation) && a.done():
		return !t.Volume.NeedsCleanup(t.Claim)
	}
	return true
}

// Traces are what the API shows of an attempt, beside its Job.
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

// isLeft says of an operation whose claim is gone, and whose volume is not there, that nothing more
// is done about it. A volume with policy Retain can be made and deleted without us, so one that
// was not created yet looks like one that was deleted on purpose. What a restore has brought back is
// data, and needs a volume to be found by.
func isLeft(o operations.Operation) bool {
	return o.Kind == operations.Setup && !o.Adopt && volumes.ReclaimPolicyOf(o) == corev1.PersistentVolumeReclaimRetain
}

// FillsTrash says that an attempt has left something to sweep.
func FillsTrash(a Attempt) bool {
	return isCleanup(a.Operation) && a.Result.State == operations.Done && a.Result.Reason == ""
}
