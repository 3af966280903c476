package decide

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Verdict names the cause for which a claim has no volume, or a volume is not cleaned up. The zero Verdict stands for
// none.
type Verdict struct {
	Cause   string // one of package status
	Message string
}

// String returns the text of wellknown.AnnotationProblem.
func (v Verdict) String() string {
	if v == (Verdict{}) {
		return ""
	}
	return v.Cause + ": " + v.Message
}

// VerdictOn returns the verdict that a claim's condition has.
func VerdictOn(claim *corev1.PersistentVolumeClaim) Verdict {
	if claim == nil {
		return Verdict{}
	}
	for _, c := range claim.Status.Conditions {
		if c.Type == wellknown.ConditionProvisioned {
			return Verdict{c.Reason, c.Message}
		}
	}
	return Verdict{}
}

// inJob returns the verdict while a Job carries out the claim's operation.
func inJob(a Attempt) Verdict {
	switch {
	case a.Operation.Copies():
		return Verdict{status.VolumeIsCopied, fmt.Sprintf("Job %s copies claim %s", a.Job, a.Operation.SourceClaim)}
	case isCleanup(a.Operation):
		return Verdict{status.WaitsForJob, fmt.Sprintf("Job %s removes what was made for the claim before", a.Job)}
	}
	return Verdict{status.DirectoryIsMade, fmt.Sprintf("Job %s makes directory %s", a.Job, a.Operation.Path)}
}

// judge completes the verdict on the claim.
//
//	claim, its volume             verdict
//	wants none                    none
//	wanted, reported              what was reported
//	wanted, in a Job              progress
//	wanted, waits for a Job       progress
//	wanted, its volume exists     as before, until it is bound
//	reserves a volume, not bound  as before
func (p *claimPlanner) judge() {
	waits := func(pending Pending) bool { return pending.Operation.Volume == volumes.VolumeName(p.UID) }
	binding := p.Claim.Status.Phase == corev1.ClaimPending && p.Claim.Spec.VolumeName != ""
	switch i := slices.IndexFunc(p.Pending, waits); {
	case binding:
		p.Verdict = VerdictOn(p.Claim)
	case !p.isWanted():
		p.Verdict = Verdict{}
	case p.Verdict != (Verdict{}):
	case p.progress != (Verdict{}):
		p.Verdict = p.progress
	case i >= 0:
		p.Verdict = Verdict{status.WaitsForJob, "the next mount Job of file system " + p.Pending[i].FileSystemID + " makes the directory"}
		if p.Pending[i].Operation.Kind == operations.Clone {
			p.Verdict.Message = "the next clone Job of file system " + p.Pending[i].FileSystemID + " copies claim " + p.Pending[i].Operation.SourceClaim
		}
	default:
		p.Verdict = VerdictOn(p.Claim)
	}
}

// judge annotates the volume with the verdict, if that has changed. What was wrong stays until an attempt to mend
// it has ended.
func (p *volumePlanner) judge() {
	have := p.volume.Object.Annotations[wellknown.AnnotationProblem]
	if have != p.verdict.String() && !p.inJob && !p.deletes {
		p.add(AnnotateVolume{p.volume.Object, p.verdict})
	}
}
