package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Plan is what is to be done.
type Plan struct {
	UID     types.UID // of the claim
	Claim   ClaimPlan
	Volumes []VolumePlan // one for each volume that is ours
}

// ClaimPlan is about the claim's own volume, and about what its owner should know.
type ClaimPlan struct {
	// Pending is the operation that it waits for.
	Pending *Pending
	// Running, if not zero, is when a mount Job that has its operation must have ended.
	Running time.Time
	// Create is the volume that a finished operation makes possible.
	Create *Creation
	// Refusal is why the claim cannot be accepted as it is; "" takes an earlier one back.
	Refusal string
	// GivenUp is not empty when the refusal is that of too many failures: it stands for the
	// world in which they happened, and while that stays the same, nothing is tried.
	GivenUp string
	// KeepsGivenUp says that the mark of an earlier world stays until the first attempt in the
	// new one, which is counted from one.
	KeepsGivenUp bool
	// Reschedule says why the scheduler should choose another node.
	Reschedule string
	// Wait is what the claim waits for that nobody here can bring about.
	Wait string
	// Rediscover says that discovery should look for new file systems at once.
	Rediscover bool
	// Failed is the newest attempt, if it failed.
	Failed *Attempt
	// Conflict says what stands where the claim's volume should.
	Conflict string
	// Spent are the Jobs of which nothing can come any more, because their file system is gone.
	Spent []string
}

// Creation is a volume to create.
type Creation struct {
	// Job is the mount Job that has made the directory, with this many operations.
	Job          string
	JobSize      int
	Operation    operations.Operation
	FileSystemID string
	GID          int
}

// VolumePlan is about one volume.
type VolumePlan struct {
	Object *corev1.PersistentVolume
	// Pending is the operation that it waits for.
	Pending *Pending
	// Running, if not zero, is when a mount Job that has its operation must have ended.
	Running time.Time
	// AddFinalizer and RemoveFinalizer are about the one of the volume's deletion.
	AddFinalizer, RemoveFinalizer bool
	// Spent are the Jobs from whose outcomes the volume would be made again. They are told before the
	// finalizer goes.
	Spent []string
	// Gone says that the finalizer goes because the file system has.
	Gone bool
	// Adopt makes an original volume ours.
	Adopt bool
	// Delete ends the volume: its directory has been dealt with.
	Delete bool
	// Skipped is why the directory of a deleted volume stays.
	Skipped string
	Expand  volumes.Expansion
	// Failed is the newest attempt, if it failed.
	Failed *Attempt
	// Problem is why the volume can be neither cleaned nor adopted.
	Problem string
}

// Pending is an operation that waits for a mount Job of its file system.
type Pending struct {
	Claim        types.UID // that was decided about
	FileSystemID string
	Operation    operations.Operation
	// Due is when it may run; not zero after failures.
	Due time.Time
	// Since orders those that wait.
	Since time.Time
	// Blockers are owners in the ledger that kept an earlier cleanup from ending. Each is to be
	// looked for, live: one that no longer exists is released together with this operation.
	Blockers []operations.Owner
}

// Turn orders operations that wait: by age, and those that have failed by when they may run again, so
// that they do not delay the others.
func (w Pending) Turn() time.Time {
	if w.Due.After(w.Since) {
		return w.Due
	}
	return w.Since
}

// Decide says what is to be done.
func Decide(s State) Plan {
	plan := Plan{UID: s.UID, Claim: s.planClaim()}
	for _, v := range s.Volumes {
		if p, ours := s.planVolume(v); ours {
			plan.Volumes = append(plan.Volumes, p)
		}
	}
	return plan
}

// IsUnsettled says that the decision may change without an event about the claim or the file systems.
func (p ClaimPlan) IsUnsettled() bool {
	return p.Refusal != "" || p.Wait != "" && !p.Rediscover || p.Conflict != "" || p.Pending != nil
}

// IsUnsettled says that the decision may change without an event about the volume.
func (p VolumePlan) IsUnsettled() bool {
	return p.Problem != "" || p.Pending != nil
}

// Waiting are the operations that wait for a mount Job.
func (p Plan) Operations() []Pending {
	var all []Pending
	if p.Claim.Pending != nil {
		all = append(all, *p.Claim.Pending)
	}
	for _, v := range p.Volumes {
		if v.Pending != nil {
			all = append(all, *v.Pending)
		}
	}
	for i := range all {
		all[i].Claim = p.UID
	}
	return all
}

// again is the operation of an attempt, once more.
//
//	attempt          number  due
//	stopped          same    at once: it was not begun
//	lost, the first  next    at once: nodes die, and one may have a mount that is none
//	lost             next    after the backoff
//	failed           next    after the backoff
func (s State) again(a Attempt, operation operations.Operation) (Pending, error) {
	number := volumes.AttemptOf(a.Operation)
	w := Pending{FileSystemID: a.FileSystemID, Since: a.Began}
	switch {
	case a.stopped():
	case a.lost() && number == 1:
		number++
	case a.lost():
		w.Due = a.after(mountjobs.Backoff(s.Backoff, number-1))
		number++
	default:
		w.Due = a.after(mountjobs.Backoff(s.Backoff, number))
		number++
	}
	var err error
	w.Operation, err = volumes.WithAttempt(operation, number)
	return w, err
}

// after is when a wait after an attempt is over. The end is a time in an object; since this replica
// saw that the attempt was over, it knows without a clock what has passed. So a clock that is wrong
// ends no wait before the first minute of it, and makes none longer than it is.
//
//	end of the attempt    wait of 4 minutes is over
//	when it was seen      4 minutes after the end
//	an hour before        a minute after it was seen
//	an hour after         4 minutes after it was seen
//	not seen              4 minutes after the end
func (a Attempt) after(wait time.Duration) time.Time {
	ended := a.Ended
	if ended.IsZero() {
		ended = a.Began
	}
	due := ended.Add(wait)
	if a.OverSince.IsZero() {
		return due
	}
	if earliest := a.OverSince.Add(min(wait, mountjobs.ClockGuard)); due.Before(earliest) {
		return earliest
	}
	if latest := a.OverSince.Add(wait); due.After(latest) {
		return latest
	}
	return due
}

// newest is the newest attempt of one of some kinds that began at or after a time.
func (s State) newest(volume string, since time.Time, wanted func(operations.Operation) bool) (Attempt, bool) {
	for _, a := range s.Attempts(volume) {
		if a.Began.Before(since) {
			break
		}
		if wanted(a.Operation) {
			return a, true
		}
	}
	return Attempt{}, false
}
