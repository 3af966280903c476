package decide

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Plan has the changes and the operations that follow from a State.
type Plan struct {
	// Changes are applied in their order. None depends on the success of another.
	Changes []Change
	// Pending are the operations that wait for a mount Job.
	Pending []Pending
	// RunningUntil is when the first running mount Job with an operation of the claim must have ended; zero for none.
	RunningUntil time.Time
	// Verdict says why the claim has no volume; zero if it has one, or wants none.
	Verdict Verdict
	// Unsettled says that the decision may change without an event about the claim, its volumes or file systems.
	Unsettled bool
}

// Change is one step of a plan: one of the types below.
type Change any

// Object is a claim or a volume.
type Object interface {
	runtime.Object
	metav1.Object
}

type (
	// Warn writes a Warning event, unless the latest one of its topic has the same message.
	Warn struct {
		Object                 Object
		Reason, Topic, Message string
		// Cause says in a word why the object waits or fails; "" if that is not known.
		Cause string
	}
	// Inform is Warn with a Normal event.
	Inform Warn
	// Rediscover lists the file systems at once.
	Rediscover struct{}
	// Annotate sets annotations of the claim or of a volume, and removes those that are nil.
	Annotate struct {
		Object      Object
		Annotations map[string]any
		Reason      string // of the event if the apiserver refuses that; "" for none
	}
	// MarkUsed marks the outcomes of Jobs for a volume as used: no volume comes of them any more.
	MarkUsed struct {
		Volume string
		Jobs   []string
	}
	// CreateVolume creates the volume that a mount Job has made the directory of.
	CreateVolume struct {
		Attempt
		// AccessPointID and PointPort are those of the volume's access point, zero for one that is a directory. For
		// a claim that is gone, the access point may have no port. IAM says that its tunnel presents an identity.
		AccessPointID string
		PointPort     int
		IAM           bool
	}
	// CreatePoint begins to create the access point of a volume, unless that has begun.
	CreatePoint struct{ Point volumes.Point }
	// DeletePoint begins to delete the access point of a volume whose directory has been dealt with.
	DeletePoint struct {
		Point volumes.Point
		ID    string
	}
	// AdoptVolume makes a volume of the original system ours.
	AdoptVolume struct{ Object *corev1.PersistentVolume }
	// DeleteVolume deletes a volume whose directory has been dealt with, and removes our finalizer.
	// Before that, MakerJobs are marked as used, or the volume would be created again.
	DeleteVolume struct {
		Object    *corev1.PersistentVolume
		MakerJobs []string
	}
	// AddFinalizer has a volume's deletion wait for the cleanup of its directory.
	AddFinalizer struct{ Object *corev1.PersistentVolume }
	// RemoveFinalizer has it wait no longer. MakerJobs are those of DeleteVolume.
	RemoveFinalizer DeleteVolume
	// ExpandVolume writes a volume's new capacity.
	ExpandVolume struct {
		Object *corev1.PersistentVolume
		Claim  *corev1.PersistentVolumeClaim
		Size   resource.Quantity
	}
	// ExpandClaim writes to a claim's status that its volume has grown.
	ExpandClaim ExpandVolume
)

// Pending is an operation that waits for a mount Job of its file system.
type Pending struct {
	Claim        types.UID // that was decided about
	FileSystemID string
	Operation    operations.Operation
	// Due is when it may run; not zero after failures.
	Due time.Time
	// Since is when it began to wait.
	Since time.Time
	// Blockers are owners in the ledger that kept an earlier cleanup from ending. Each is to be
	// read live: one that no longer exists is released together with this operation.
	Blockers []operations.Owner
}

// Turn orders pending operations: by age, and those that have failed by when they may run again, so
// that they do not delay the others.
func (p Pending) Turn() time.Time { return mountjobs.Later(p.Since, p.Due) }

// Decide plans the next steps for one claim and its volumes.
func Decide(s State) Plan {
	plan := s.planClaim()
	for _, v := range s.Volumes {
		s.planVolume(v, &plan)
	}
	for i := range plan.Pending {
		plan.Pending[i].Claim = s.UID
	}
	return plan
}

// CreatesVolume reports whether a volume is created.
func (p Plan) CreatesVolume() bool {
	return slices.ContainsFunc(p.Changes, func(change Change) bool { _, is := change.(CreateVolume); return is })
}

func (p *Plan) add(changes ...Change) { p.Changes = append(p.Changes, changes...) }

// annotate has an object annotated as wanted, where it is not; "" is no annotation.
func (p *Plan) annotate(object Object, want map[string]string) {
	changes := map[string]any{}
	for key, value := range want {
		switch have, ok := object.GetAnnotations()[key]; {
		case value == "" && ok:
			changes[key] = nil
		case value != "" && have != value:
			changes[key] = value
		}
	}
	if len(changes) > 0 {
		p.add(Annotate{object, changes, ""})
	}
}

// wait adds an operation that waits for a mount Job. No event about the claim reports what other claims do with
// its directory meanwhile, which may change the operation.
func (p *Plan) wait(pending Pending) {
	p.Pending = append(p.Pending, pending)
	p.Unsettled = true
}

func (p *Plan) awaitEnd(running Attempt) {
	if p.RunningUntil.IsZero() || running.Until.Before(p.RunningUntil) {
		p.RunningUntil = running.Until
	}
}

// retry returns the operation with the number and the due time of its next attempt.
//
//	attempt          number  due
//	stopped          same    at once: it was not begun
//	lost, the first  next    at once: nodes die, and one may have a mount that is none
//	lost             next    after the backoff
//	failed           next    after the backoff
func (s State) retry(p Pending, last Attempt) Pending {
	number := last.Operation.Attempt()
	switch {
	case last.stopped():
	case last.lost():
		if number > 1 {
			p.Due = last.after(mountjobs.Backoff(s.Backoff, number-1))
		}
		number++
	default:
		p.Due = last.after(mountjobs.Backoff(s.Backoff, number))
		number++
	}
	p.Operation.Try = number
	return p
}

// after returns the end of a wait that begins with the end of an attempt. The attempt's end is a time in an
// object, and may be of a wrong clock, so it is bounded by the time at which this replica saw that the attempt was
// over: a wrong clock ends no wait before its first minute, and makes none longer.
//
//	end of the attempt    wait of 4 minutes is over
//	when it was seen      4 minutes after the end
//	an hour before        a minute after it was seen
//	an hour after         4 minutes after it was seen
//	not seen              4 minutes after the end
func (a Attempt) after(wait time.Duration) time.Time {
	due := cmp.Or(a.Ended, a.Began).Add(wait)
	if a.OverSince.IsZero() {
		return due
	}
	if latest := a.OverSince.Add(wait); due.After(latest) {
		return latest
	}
	return mountjobs.Later(due, a.OverSince.Add(min(wait, mountjobs.ClockGuard)))
}

// newest returns the newest attempt that is wanted and began at or after a time, the zero Attempt if there is none.
func (s State) newest(volume string, since time.Time, wanted func(operations.Operation) bool) Attempt {
	for _, a := range s.Attempts(volume) {
		if a.Began.Before(since) {
			break
		}
		if wanted(a.Operation) {
			return a
		}
	}
	return Attempt{}
}

// jobsOf returns the Jobs with unused attempts to make a volume that match.
func (s State) jobsOf(volume string, match func(Attempt) bool) []string {
	var jobs []string
	for _, a := range s.Attempts(volume) {
		if a.Unused && (isProvisioning(a.Operation) || a.Operation.Abandon) && match(a) {
			jobs = append(jobs, a.Job)
		}
	}
	return jobs
}

// Verdict names the cause for which a claim has no volume, or a volume is not cleaned up; the zero Verdict none.
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

// judge annotates the volume with the verdict. What was wrong stays until an attempt to mend it has ended.
func (p *volumePlanner) judge() {
	if !p.inJob && !p.deletes {
		p.annotate(p.volume.Object, map[string]string{wellknown.AnnotationProblem: p.verdict.String()})
	}
}
