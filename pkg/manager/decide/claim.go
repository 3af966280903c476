package decide

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

type claimPlanner struct {
	State
	Plan
	// refusal is why the claim cannot be accepted as it is, or "". givenUp is the fingerprint of the
	// input that too many setups failed with: while it stays the same, none is tried.
	refusal, givenUp string
	// keepGivenUp leaves an earlier fingerprint until the first attempt with other input, which counts from one.
	keepGivenUp bool
	// reschedule has the scheduler choose another node.
	reschedule bool
	// progress is what is done for the claim, if something is.
	progress Verdict
}

// planClaim plans for the claim's own volume. What was begun is finished first, as it was begun,
// whatever has become of claim and class; only then is the claim asked what it wants.
//
//	volume  newest attempt      claim   what is done
//	exists  any                 any     nothing; a volume of that name that is another claim's is reported
//	none    running             any     nothing, until its end is due
//	none    on a gone system    any     as if there were none; its Job is marked used
//	none    an unfinished copy  gone    what was copied is removed
//	none    with policy Retain  gone    nothing: it may have been made and deleted
//	none    done, not used      any     volume, with the policy that it was begun with
//	none    lost                any     the same once more; given up after too many, if wanted
//	none    failed              wanted  reported; begun anew after a wait
//	none    none, or used       wanted  begun
//	none    a cleanup           wanted  begun: it has undone what was done before it
func (s State) planClaim() Plan {
	p := claimPlanner{State: s}
	name := volumes.VolumeName(s.UID)
	if i := slices.IndexFunc(s.Volumes, func(v Volume) bool { return v.Name == name }); i >= 0 {
		p.reportConflict(s.Volumes[i].Object)
		return p.annotated()
	}
	last := s.newest(name, time.Time{}, func(o operations.Operation) bool { return isProvisioning(o) || isCleanup(o) })
	if last.running() {
		p.awaitEnd(last)
		p.progress = inJob(last)
		return p.annotated()
	}
	if p.abandon(last) {
		return p.Plan
	}
	if isCleanup(last.Operation) || s.Targets.Gone[last.FileSystemID] {
		last = Attempt{}
	}
	// On a file system that is gone, an outcome can never be used.
	unusable := func(a Attempt) bool {
		return (a.done() || a.lost() || a.Operation.Kind == operations.Clone) && !a.running() && s.Targets.Gone[a.FileSystemID]
	}
	if jobs := s.jobsOf(name, unusable); len(jobs) > 0 {
		p.add(MarkUsed{name, jobs})
	}
	return p.next(last)
}

// next goes on from an attempt that has ended; last is the zero Attempt if there was none.
func (p *claimPlanner) next(last Attempt) Plan {
	switch {
	case p.Claim == nil && isLeft(last.Operation):
		if point, ok := volumes.PointOf(last.Operation); ok {
			p.Points.GiveUp(point)
		}
		return p.Plan
	case last.Unused && last.done():
		return p.create(last)
	}
	// Without its fingerprint, a claim whose class was removed and came back would seem to fail for the first time.
	p.keepGivenUp = p.hasGivenUp(last)
	switch {
	case last.Unused && (last.lost() || p.Claim == nil && last.maybeDone()):
		p.schedule(Pending{FileSystemID: last.FileSystemID, Operation: last.Operation, Since: last.Began}, last)
	case p.isWanted():
		p.provision(last)
	}
	return p.annotated()
}

func isProvisioning(o operations.Operation) bool { return o.AddsOwner() && !o.Adopt }

func isCleanup(o operations.Operation) bool { return o.Kind == operations.Cleanup || o.Abandon }

// abandon plans the removal of an incomplete copy for a deleted claim, and reports whether there is one. A complete
// copy becomes a volume, which is then cleaned up like any other.
func (p *claimPlanner) abandon(last Attempt) bool {
	if p.Claim != nil || last.Operation.Kind != operations.Clone || !last.Unused || last.done() || p.Targets.Gone[last.FileSystemID] {
		return false
	}
	operation := last.Operation
	operation.Source, operation.Abandon = operations.Source{}, true
	p.schedule(Pending{FileSystemID: last.FileSystemID, Operation: operation, Since: last.Began}, last)
	return true
}

func (p *claimPlanner) reportConflict(object *corev1.PersistentVolume) {
	if !p.isWanted() || object.DeletionTimestamp != nil {
		return
	}
	ref := object.Spec.ClaimRef
	if ref != nil && (ref.UID == p.UID || ref.UID == "" && ref.Namespace == p.Claim.Namespace && ref.Name == p.Claim.Name) {
		return
	}
	p.warn(status.VolumeRefused, "conflict", fmt.Sprintf("PersistentVolume %s has the name that this claim's volume must have, and is another claim's: delete it, or give it another name", object.Name))
	p.Unsettled = true
}

func (p *claimPlanner) warn(cause, topic, message string) {
	if p.Claim != nil {
		p.Verdict = Verdict{cause, message}
		p.add(Warn{p.Claim, wellknown.EventProvisioningFailed, topic, message, cause})
	}
}

// reportWait tells the claim that it waits for something that no write here can bring about; "" is nothing.
func (p *claimPlanner) reportWait(cause, what string) {
	if what != "" {
		p.warn(cause, "wait", "waiting: "+what)
		p.Unsettled = true
	}
}

func (p *claimPlanner) refuse(cause, why string) {
	p.refusal = why
	p.warn(cause, "refusal", why)
	p.Unsettled = true
}

// create leaves the claim's annotations and verdict alone: the next plan sees the volume.
func (p *claimPlanner) create(a Attempt) Plan {
	creation := CreateVolume{Attempt: a}
	port := p.Targets.Port(a.FileSystemID)
	if point, ok := volumes.PointOf(a.Operation); ok && port != 0 && !p.point(point, &creation) {
		return p.annotated()
	}
	switch {
	case port != 0:
		p.Verdict = VerdictOn(p.Claim)
		p.add(creation)
		return p.Plan
	case !p.Targets.Known:
		p.reportWait(status.WaitsForFileSystem, p.Targets.Problem)
	default:
		p.reportWait(status.WaitsForFileSystem, fmt.Sprintf("the directory is made, but file system %s has no local port now%s", a.FileSystemID, seeTable))
	}
	return p.annotated()
}

func (s State) isWanted() bool {
	return s.Claim != nil && volumes.IsRequested(s.Claim, s.Class, s.Provisioner)
}

// provision begins anew, with what the claim asks for now.
func (p *claimPlanner) provision(last Attempt) {
	if !p.Targets.Known {
		p.reportWait(status.WaitsForFileSystem, p.Targets.Problem)
		return
	}
	operation, choice, err := p.begin()
	switch {
	case err != nil:
		p.refuse(p.refusalCause(), err.Error())
	case choice.GiveNodeBack != "":
		p.reschedule = true
		p.warn(status.WaitsForOtherNode, "node", choice.GiveNodeBack+": asking the scheduler for another node")
	case choice.Unknown:
		p.add(Rediscover{})
		p.warn(status.WaitsForFileSystem, "wait", "waiting: "+choice.Wait)
	case choice.Wait != "":
		p.reportWait(cmp.Or(choice.Cause, status.WaitsForFileSystem), choice.Wait)
	default:
		operation.Size = p.sizeOn(choice.FileSystemID, operation)
		p.schedule(Pending{FileSystemID: choice.FileSystemID, Operation: operation, Since: p.Claim.CreationTimestamp.Time}, last)
	}
}

func (s State) refusalCause() string {
	if _, err := volumes.ParseClass(s.Class); err != nil {
		return status.ClassRefused
	}
	return status.ClaimRejected
}

// begin returns the operation that the claim asks for, if a file system was chosen. The error is a refusal.
func (s State) begin() (operation operations.Operation, choice volumes.Choice, err error) {
	class, err := volumes.ParseClass(s.Class)
	if err != nil {
		return operation, choice, err
	}
	claim, err := volumes.ParseClaim(s.Claim, class)
	if err != nil {
		return operation, choice, err
	}
	if _, reads := s.Claim.Annotations[wellknown.AnnotationReads]; reads {
		return s.beginReading(claim, class)
	}
	if claim.Source != "" {
		if wait, err := claim.From(s.Named(claim.Namespace, claim.Source), s.Provisioner); wait != "" || err != nil {
			return operation, volumes.Choice{Wait: wait, Cause: status.WaitsForSource}, err
		}
	}
	if len(class.FileSystemTags) > 0 && !s.Targets.Listed {
		return operation, volumes.Choice{Wait: "the EFS API has not answered yet, and the class asks for tags" + seeTable, Unknown: true}, nil
	}
	choice, err = volumes.Choose(claim, class, s.NodeZone, s.candidates(claim.Path), s.Targets.Excluded)
	if choice.Unknown && s.Targets.Unanswered {
		choice.Wait += " The EFS API has not answered since the manager started" + seeTable
	}
	if err != nil || choice.FileSystemID == "" {
		return operation, choice, err
	}
	if p := class.AccessPoints; p.Allocates() {
		var wait string
		if claim.GID, wait = s.Points.GID(choice.FileSystemID, volumes.VolumeName(claim.UID), p.GIDMin, p.GIDMax); claim.GID == 0 {
			return operation, volumes.Choice{Wait: wait}, nil
		}
	}
	operation, err = volumes.Begin(claim, class, choice, s.Cluster)
	operation.Joins = operation.Kind == operations.Setup && s.InUse(choice.FileSystemID, claim.Path)
	return operation, choice, err
}

// seeTable ends a wait whose cause discovery reports elsewhere.
const seeTable = "; the events of ConfigMap " + wellknown.TargetsConfigMap + " say why"

func (s State) candidates(path string) []volumes.Candidate {
	candidates := s.Targets.Candidates()
	holders := s.Holders(path)
	for i := range candidates {
		candidates[i].HoldsPath = slices.Contains(holders, candidates[i].ID)
	}
	return candidates
}

// schedule plans when the operation may run, or gives the claim up. While the result of the last setup of such a claim
// is unknown, its Job stays unused: the setup continues once anything changes or the claim is deleted.
func (p *claimPlanner) schedule(pending Pending, last Attempt) {
	if !last.isUnsuccessful() {
		p.wait(pending)
		return
	}
	if p.hasGivenUp(last) && !last.stopped() && p.isWanted() {
		p.giveUp(pending, last)
		return
	}
	pending = p.retry(pending, last)
	p.wait(pending)
	if !last.stopped() {
		p.reportFailure(last, pending.Due)
	}
}

func (p *claimPlanner) reportFailure(last Attempt, due time.Time) {
	cause, doing := status.SetupFailed, "make the directory"
	if last.Operation.Copies() {
		cause, doing = status.CloneFailed, "copy claim "+last.Operation.SourceClaim
	}
	text := fmt.Sprintf("Job %s could not %s: %s", last.Job, doing, last.Why())
	if !due.IsZero() {
		text += fmt.Sprintf(" (attempt %d; next at %s)", last.Operation.Attempt(), due.UTC().Format("15:04:05 MST"))
	}
	p.warn(cause, last.Job, text)
}

// giveUp tries nothing until the input of the decision is another one, and then as if for the first time.
func (p *claimPlanner) giveUp(pending Pending, last Attempt) {
	now := p.fingerprint(pending.Operation.Path)
	before, marked := p.Claim.Annotations[wellknown.AnnotationGivenUp]
	if !marked || before == now {
		p.givenUp = now
		p.refuse(status.GivenUp, fmt.Sprintf("gave up after %d failed setups, until the claim, its class or the file systems change: %s", last.Operation.Attempt(), last.Why()))
		return
	}
	pending.Operation.Try = 0
	p.wait(pending)
}

func (s State) hasGivenUp(last Attempt) bool {
	return s.Threshold > 0 && last.Job != "" && last.Operation.Attempt() >= s.Threshold
}

// fingerprint returns a hash of all input that an edit could change. The path stands for the claim's annotations.
func (s State) fingerprint(path string) string {
	type fileSystem struct {
		ID, Unusable string
		Aliases      []string `json:",omitempty"`
	}
	input := struct {
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
		input.FileSystems = append(input.FileSystems, fileSystem{c.ID, c.Unusable, s.Aliases[c.ID]})
	}
	data, _ := json.Marshal(input) // it was JSON before
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// asksOther reports whether the cluster has asked another provisioner: another installation may annotate the claim
// as we do, and two that correct each other would never end.
func asksOther(claim *corev1.PersistentVolumeClaim, provisioner string) bool {
	asked := volumes.AskedProvisioner(claim)
	return asked != "" && asked != provisioner
}

// annotated returns the plan, with the claim's annotations and verdict as they should be from now on.
func (p *claimPlanner) annotated() Plan {
	if p.Claim == nil {
		return p.Plan
	}
	if asksOther(p.Claim, p.Provisioner) {
		p.Verdict = VerdictOn(p.Claim)
		return p.Plan
	}
	p.judge()
	want := map[string]string{wellknown.AnnotationRejected: "", wellknown.AnnotationRejectReason: p.refusal, wellknown.AnnotationGivenUp: p.givenUp}
	if p.refusal != "" {
		want[wellknown.AnnotationRejected] = wellknown.ValueTrue
	}
	if p.givenUp == "" && p.keepGivenUp {
		delete(want, wellknown.AnnotationGivenUp)
	}
	if p.reschedule {
		want[wellknown.AnnotationSelectedNode] = ""
	}
	p.annotate(p.Claim, want)
	return p.Plan
}
