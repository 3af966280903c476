package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// planClaim decides about the claim's own volume. What was begun is finished first, as it was
// begun, whatever has become of claim and class; only then is the claim asked what it wants.
//
//	volume  newest attempt      claim   what is done
//	there   any                 any     nothing; a stranger's volume of that name is told
//	none    running             any     nothing, until its end is due
//	none    on a gone system    any     as if there were none; its Job is told
//	none    with policy Retain  gone    nothing: it may have been made and deleted
//	none    done, not used      any     volume, with the policy that it was begun with
//	none    lost                any     the same once more; given up after too many, if wanted
//	none    failed              wanted  told; begun anew after a wait
//	none    none, or used       wanted  begun
//	none    a cleanup           wanted  begun: it has undone what was done before it
func (s State) planClaim() ClaimPlan {
	name := volumes.VolumeName(s.UID)
	if v := s.volumeNamed(name); v != nil {
		return ClaimPlan{Conflict: s.conflict(v)}
	}
	last, begun := s.newest(name, time.Time{}, isProvisioningOrCleanup)
	if begun && last.running() {
		return ClaimPlan{Running: last.Until}
	}
	if isCleanup(last.Operation) || s.Targets.Gone[last.FileSystemID] {
		last, begun = Attempt{}, false
	}
	plan := s.planNext(last, begun)
	plan.Spent = s.spent(name)
	return plan
}

// spent are the Jobs that wait for somebody to use what they did on a file system that is gone.
// Without a word they would wait for ever.
func (s State) spent(volume string) []string {
	var jobs []string
	for _, a := range s.Attempts(volume) {
		if a.Unused && isProvisioning(a.Operation) && (a.done() || a.lost()) && s.Targets.Gone[a.FileSystemID] {
			jobs = append(jobs, a.Job)
		}
	}
	return jobs
}

// planNext goes on from an attempt that has ended; last is the zero Attempt if there was none.
func (s State) planNext(last Attempt, begun bool) ClaimPlan {
	if s.Claim == nil && isLeft(last.Operation) {
		return ClaimPlan{}
	}
	if begun && last.Unused && last.done() {
		return s.create(last)
	}
	var plan ClaimPlan
	switch {
	case begun && last.Unused && last.lost():
		plan = s.repeat(last)
	case s.Claim == nil:
		return ClaimPlan{}
	default:
		plan = s.provision(last)
	}
	// Without its mark, a claim whose class went and came back would seem to fail for the first
	// time in the new world.
	plan.KeepsGivenUp = begun && plan.GivenUp == "" && s.givenUp(last)
	return plan
}

func isProvisioning(o operations.Operation) bool {
	return o.AddsOwner() && !o.Adopt
}

func isProvisioningOrCleanup(o operations.Operation) bool { return isProvisioning(o) || isCleanup(o) }

func (s State) volumeNamed(name string) *corev1.PersistentVolume {
	for _, v := range s.Volumes {
		if v.Object.Name == name {
			return v.Object
		}
	}
	return nil
}

// conflict says what is wrong with a volume of the name that only the claim's may have.
func (s State) conflict(object *corev1.PersistentVolume) string {
	if s.Claim == nil || s.Claim.Spec.VolumeName != "" || object.DeletionTimestamp != nil {
		return ""
	}
	ref := object.Spec.ClaimRef
	if ref != nil && (ref.UID == s.UID || ref.UID == "" && ref.Namespace == s.Claim.Namespace && ref.Name == s.Claim.Name) {
		return ""
	}
	if standing, _ := volumes.Judge(s.Claim, s.Class, s.Provisioner); standing != volumes.Ours {
		return ""
	}
	return fmt.Sprintf("PersistentVolume %s has the name that this claim's volume must have, and is another claim's: delete it, or give it another name", object.Name)
}

func (s State) create(a Attempt) ClaimPlan {
	port := s.Targets.Port(a.FileSystemID)
	if port == 0 && !s.Targets.Known {
		return ClaimPlan{Wait: s.Targets.Trouble}
	}
	if port == 0 {
		return ClaimPlan{Wait: fmt.Sprintf("the directory is made, but file system %s has no local port now%s", a.FileSystemID, seeTable)}
	}
	return ClaimPlan{Create: &Creation{Job: a.Job, JobSize: a.JobSize, Operation: a.Operation, FileSystemID: a.FileSystemID, GID: a.Result.GID}}
}

// repeat does the same once more. A claim that is given up meanwhile keeps its Job, which knows what
// was begun: once anything changes, or the claim is deleted, it goes on.
func (s State) repeat(a Attempt) ClaimPlan {
	if s.givenUp(a) && !a.stopped() && s.isWanted() {
		return s.giveUp(a, Pending{FileSystemID: a.FileSystemID, Operation: a.Operation, Since: a.Began})
	}
	wanted, err := s.again(a, a.Operation)
	if err != nil {
		return ClaimPlan{Wait: err.Error()}
	}
	plan := ClaimPlan{Pending: &wanted}
	if !a.stopped() {
		plan.Failed = &a
	}
	return plan
}

// provision asks the claim what it wants. last is the zero Attempt if there was none.
func (s State) provision(last Attempt) ClaimPlan {
	switch {
	case !s.isWanted():
		return ClaimPlan{} // the binder and the scheduler say what they wait for
	case !s.Targets.Known:
		return ClaimPlan{Wait: s.Targets.Trouble}
	}
	operation, plan := s.begin()
	if operation == nil {
		return plan
	}
	return s.schedule(*operation, plan.Pending.FileSystemID, last)
}

// isWanted says that there is a claim that asks us for a volume.
func (s State) isWanted() bool {
	if s.Claim == nil {
		return false
	}
	standing, _ := volumes.Judge(s.Claim, s.Class, s.Provisioner)
	return standing == volumes.Ours
}

// begin is the operation that the claim asks for, or a plan that says why there is none.
func (s State) begin() (*operations.Operation, ClaimPlan) {
	class, err := volumes.ParseClass(s.Class)
	if err != nil {
		return nil, ClaimPlan{Refusal: err.Error()}
	}
	claim, err := volumes.ParseClaim(s.Claim, class)
	if err != nil {
		return nil, ClaimPlan{Refusal: err.Error()}
	}
	if len(class.FileSystemTags) > 0 && !s.Targets.Listed {
		return nil, ClaimPlan{Wait: "the EFS API has not answered yet, and the class asks for tags" + seeTable, Rediscover: true}
	}
	choice, err := volumes.Choose(claim, class, s.NodeZone, s.candidates(claim.Path))
	switch {
	case err != nil:
		return nil, ClaimPlan{Refusal: err.Error()}
	case choice.GiveNodeBack != "":
		return nil, ClaimPlan{Reschedule: choice.GiveNodeBack}
	case choice.Unknown && s.Targets.Unanswered:
		return nil, ClaimPlan{Wait: choice.Wait + " The EFS API has not answered since the manager started" + seeTable, Rediscover: true}
	case choice.Wait != "":
		return nil, ClaimPlan{Wait: choice.Wait, Rediscover: choice.Unknown}
	}
	operation, err := volumes.Begin(claim, class, choice, s.Cluster)
	if err != nil {
		return nil, ClaimPlan{Refusal: err.Error()}
	}
	operation.Joins = operation.Kind == operations.Setup && s.InUse(choice.FileSystemID, claim.Path)
	return &operation, ClaimPlan{Pending: &Pending{FileSystemID: choice.FileSystemID}}
}

// seeTable ends a wait whose cause discovery writes elsewhere.
const seeTable = "; the events of ConfigMap " + wellknown.TargetsConfigMap + " say why"

func (s State) candidates(path string) []volumes.Candidate {
	candidates := s.Targets.Candidates()
	holders := s.Holders(path)
	for i := range candidates {
		for _, id := range holders {
			candidates[i].HoldsPath = candidates[i].HoldsPath || candidates[i].ID == id
		}
	}
	return candidates
}

// schedule says when the operation may run, and whether it still may.
func (s State) schedule(operation operations.Operation, fileSystemID string, last Attempt) ClaimPlan {
	wanted := Pending{FileSystemID: fileSystemID, Operation: operation, Since: s.Claim.CreationTimestamp.Time}
	if !last.failed() && !last.lost() || last.Job == "" {
		return ClaimPlan{Pending: &wanted}
	}
	if s.givenUp(last) {
		return s.giveUp(last, wanted)
	}
	again, err := s.again(last, operation)
	if err != nil {
		return ClaimPlan{Wait: err.Error()}
	}
	again.FileSystemID, again.Since = fileSystemID, wanted.Since
	return ClaimPlan{Pending: &again, Failed: &last}
}

// giveUp tries nothing until the world is another one, and then as if for the first time.
func (s State) giveUp(last Attempt, wanted Pending) ClaimPlan {
	now := s.fingerprint(wanted.Operation.Path)
	before, marked := s.Claim.Annotations[wellknown.AnnotationGivenUp]
	if !marked || before == now {
		why := fmt.Sprintf("gave up after %d failed setups, until the claim, its class or the file systems change: %s", volumes.AttemptOf(last.Operation), last.Why())
		return ClaimPlan{Failed: &last, GivenUp: now, Refusal: why}
	}
	var err error
	if wanted.Operation, err = volumes.WithAttempt(wanted.Operation, 1); err != nil {
		return ClaimPlan{Wait: err.Error()}
	}
	return ClaimPlan{Pending: &wanted}
}

func (s State) givenUp(last Attempt) bool {
	return s.Threshold > 0 && volumes.AttemptOf(last.Operation) >= s.Threshold
}

// fingerprint stands for all that an edit could mend. The path has what matters of the claim's
// annotations.
func (s State) fingerprint(path string) string {
	type fileSystem struct{ ID, Unusable string }
	world := struct {
		Labels      map[string]string
		Restore     string
		Path        string
		Spec        corev1.PersistentVolumeClaimSpec
		Class       string
		FileSystems []fileSystem
	}{
		Labels:  s.Claim.Labels,
		Restore: s.Claim.Annotations[wellknown.AnnotationRestore],
		Path:    path,
		Spec:    s.Claim.Spec,
		Class:   string(s.Class.UID) + "/" + s.Class.ResourceVersion,
	}
	for _, c := range s.Targets.Candidates() {
		world.FileSystems = append(world.FileSystems, fileSystem{ID: c.ID, Unusable: c.Unusable})
	}
	data, err := json.Marshal(world)
	if err != nil {
		return "" // cannot be: it was JSON before
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
