package sharedvolumes

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Changes of a SharedVolume, beside those of its volume and claim.
const (
	addFinalizer    volumes.Action = "add finalizer"
	removeFinalizer volumes.Action = "remove finalizer"
)

// plan has the writes and the reports of one sync.
type plan struct {
	status  v1alpha1.SharedVolumeStatus // as it should be
	warning string                      // for an event, "" for none
	poll    bool                        // discovery should poll the EFS API soon
	changes []volumes.Change            // in order; Why is "" unless it is a repair
}

// isEmpty reports whether the plan writes and reports nothing.
func (p plan) isEmpty(s state) bool {
	return s.object == nil || len(p.changes) == 0 && p.warning == "" && equality.Semantic.DeepEqual(s.object.Status, p.status)
}

// planFor plans the next changes. Equal states give equal plans, and a state that is as it should be
// one without changes and with its own status.
//
//	object      volume and claim     changes
//	on another  any                  none
//	installation's
//	invalid     any                  none
//	any         another owner's      none
//	new         –                    add finalizer
//	wanted      without a tunnel     none, if both are missing
//	wanted      any                  those of volumes.Pair
//	deleted     claim exists         delete claim
//	deleted     claim is gone        delete volume
//	deleted     both are gone        remove finalizer
func planFor(s state) plan {
	switch {
	case s.object == nil:
		return plan{}
	case s.targets.Others[s.object.Spec.FileSystemID] != "":
		return s.planOther()
	case s.object.DeletionTimestamp != nil:
		return s.planDeletion()
	}
	if why := s.paths.refusal(s.object); why != "" {
		return s.report(v1alpha1.Failed, "Refused", why)
	}
	if why := s.conflict(); why != "" {
		return s.report(v1alpha1.Failed, "NameTaken", why)
	}
	if !slices.Contains(s.object.Finalizers, wellknown.FinalizerSharedVolume) {
		p := s.report(v1alpha1.Pending, "Provisioning", beingMade)
		p.changes = []volumes.Change{{Action: addFinalizer}}
		return p
	}
	return s.planPair()
}

const beingMade = "claim and volume are being made"

// planPair plans a claim and a volume that are right.
func (s state) planPair() plan {
	if !s.targets.Known {
		return s.planUnknown()
	}
	problem := s.problem()
	if s.port() == 0 || problem.reason != "" && s.volume == nil && s.claim == nil {
		return s.planMet(problem) // nothing to create, or nothing to create it from
	}
	changes := s.pair().Changes()
	if len(changes) == 0 {
		return s.planMet(problem)
	}
	for i, change := range changes {
		if s.object.Status.ClaimRef == nil && (change.Action == volumes.CreateVolume || change.Action == volumes.CreateClaim) {
			changes[i].Why = "" // created for the first time
		}
	}
	p := s.planMet(problem)
	if first := changes[0]; !s.serves() || first.Action != volumes.UpdateVolume && first.Action != volumes.UpdateClaim {
		p = s.planUnbound(problem, first)
	}
	p.changes = changes
	return p
}

// planOther leaves everything, also the status, to the installation that has the file system.
func (s state) planOther() plan {
	p := plan{status: s.object.Status}
	if s.object.Status.Phase != v1alpha1.Ready {
		id := s.object.Spec.FileSystemID
		p.warning = fmt.Sprintf("file system %s %s", id, volumes.BelongsTo(s.targets.Others[id]))
	}
	return p
}

// planUnknown leaves everything as it is until discovery has its first snapshot.
func (s state) planUnknown() plan {
	if s.object.Status.Phase != "" && s.object.Status.Phase != v1alpha1.Pending {
		return plan{status: s.object.Status}
	}
	waitsFor := cmp.Or(s.targets.Problem, "the first poll of the file systems")
	return s.report(v1alpha1.Pending, "Waiting", "waiting for "+waitsFor)
}

// planMet reports a pair in which nothing is to be changed.
func (s state) planMet(p problem) plan {
	if p.terminal || !s.serves() {
		return s.planUnbound(p, volumes.Change{})
	}
	met := s.report(v1alpha1.Ready, "Bound", p.message)
	met.warning, met.poll = p.message, p.unknown
	return met
}

// planUnbound reports why pods cannot use the claim; repair is the change that is made now, if any.
func (s state) planUnbound(p problem, repair volumes.Change) plan {
	claim := s.claim
	switch {
	case p.reason != "":
		phase := v1alpha1.Pending
		if p.terminal {
			phase = v1alpha1.Failed
		}
		unbound := s.report(phase, p.reason, p.message)
		unbound.warning, unbound.poll = p.message, p.unknown
		return unbound
	case claim != nil && claim.DeletionTimestamp != nil:
		return s.report(v1alpha1.Pending, "Repairing", fmt.Sprintf("claim %s was deleted: it goes when no pod uses it, and is then created again", claim.Name))
	case s.object.Status.ClaimRef != nil && repair.Why != "":
		return s.report(v1alpha1.Pending, "Repairing", "claim and volume are being repaired: "+repair.String())
	case claim != nil && s.volume != nil:
		return s.report(v1alpha1.Pending, "Binding", fmt.Sprintf("claim %s is being bound", claim.Name))
	}
	return s.report(v1alpha1.Pending, "Provisioning", beingMade)
}

// planDeletion deletes claim and volume and removes the finalizer, in this order. Data stays.
func (s state) planDeletion() plan {
	p := plan{status: s.object.Status}
	switch {
	case !slices.Contains(s.object.Finalizers, wellknown.FinalizerSharedVolume):
	case s.ownsClaim():
		p = s.report(v1alpha1.Deleting, "ClaimInUse", fmt.Sprintf("claim %s goes when no pod uses it", s.claim.Name))
		p.changes = deletion(s.claim, volumes.DeleteClaim)
	case s.ownsVolume():
		p = s.report(v1alpha1.Deleting, "VolumeGoes", fmt.Sprintf("volume %s is being deleted", s.volume.Name))
		p.changes = deletion(s.volume, volumes.DeleteVolume)
	default:
		p.changes = []volumes.Change{{Action: removeFinalizer}}
	}
	return p
}

// deletion returns the deletion of an object, none if it is being deleted.
func deletion(object metav1.Object, action volumes.Action) []volumes.Change {
	if object.GetDeletionTimestamp() != nil {
		return nil
	}
	return []volumes.Change{{Action: action}}
}

// report returns a plan without changes: what the status should be, and a warning about what users have
// to correct.
func (s state) report(phase v1alpha1.Phase, reason, message string) plan {
	p := plan{status: s.object.Status.DeepCopy()}
	p.status.Phase, p.status.Message, p.status.ObservedGeneration = phase, message, s.object.Generation
	p.status.ClaimRef = nil
	if s.ownsClaim() {
		p.status.ClaimRef = &v1alpha1.ClaimReference{Name: s.claim.Name}
	} else if s.object.DeletionTimestamp == nil {
		p.status.ClaimRef = s.object.Status.ClaimRef // the claim is created again
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: s.object.Generation, LastTransitionTime: metav1.NewTime(s.now),
	}
	if phase == v1alpha1.Ready {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&p.status.Conditions, condition)
	if phase == v1alpha1.Failed {
		p.warning = message
	}
	return p
}
