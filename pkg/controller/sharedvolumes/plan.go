package sharedvolumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// step is one write, besides that of the status.
type step string

// The steps.
const (
	addFinalizer    step = "add finalizer"
	createVolume    step = "create volume"
	updateVolume    step = "update volume"
	letVolumeGo     step = "let volume go"
	deleteVolume    step = "delete volume"
	createClaim     step = "create claim"
	annotateClaim   step = "annotate claim"
	deleteClaim     step = "delete claim"
	removeFinalizer step = "remove finalizer"
)

// plan is what to do next, and what to say.
type plan struct {
	step   step                          // "" for none
	repair string                        // what the step puts right, "" if it does not
	volume *corev1.PersistentVolume      // to create or update
	claim  *corev1.PersistentVolumeClaim // to create or annotate

	status    v1alpha1.SharedVolumeStatus // as it should be, also if it is so
	warning   string                      // for an event, "" for none
	lookAgain bool                        // at the file systems
}

// decide names the one next step. Equal states give equal plans, and a met state one without a
// step and with the status that is there.
//
//	object      volume               claim               step
//	refused     any                  any                 none
//	any         a stranger's         any                 none
//	new         –                    –                   add finalizer
//	wanted      missing              missing             create volume, when its tunnel is there
//	wanted      missing              ours                create volume, with the claim's uid
//	wanted      ours                 missing             create claim
//	wanted      ours, edited         any                 update volume
//	wanted      ours, leads away     ours or missing     delete claim, then delete volume
//	wanted      ours, being deleted  ours                let volume go, to create it anew
//	wanted      any                  ours, being deleted none: it goes with its last pod
//	deleted     any                  ours                delete claim
//	deleted     ours                 gone                delete volume
//	deleted     gone                 gone                remove finalizer
func decide(s state) plan {
	switch {
	case s.object == nil:
		return plan{}
	case s.object.DeletionTimestamp != nil:
		return s.ending()
	}
	if why := s.settings.refusal(s.object); why != "" {
		return s.says(v1alpha1.Failed, "Refused", why)
	}
	if why := s.taken(); why != "" {
		return s.says(v1alpha1.Failed, "NameTaken", why)
	}
	if !slices.Contains(s.object.Finalizers, wellknown.FinalizerSharedVolume) {
		p := s.says(v1alpha1.Pending, "Provisioning", beingMade)
		p.step = addFinalizer
		return p
	}
	return s.keeping()
}

const beingMade = "claim and volume are being made"

// keeping makes claim and volume, and mends them.
func (s state) keeping() plan {
	if !s.targets.Known {
		return s.unknowing()
	}
	t := s.trouble()
	p := s.judged(t)
	if s.port() == 0 || t.reason != "" && s.volume == nil && s.claim == nil {
		return p // nothing to make, or nothing to make it of
	}
	next := s.next()
	if next.step == "" {
		return p
	}
	if !s.serves() || next.step != updateVolume && next.step != annotateClaim {
		p = s.unsettled(t, next.repair)
	}
	p.step, p.repair, p.volume, p.claim = next.step, next.repair, next.volume, next.claim
	return p
}

// unknowing leaves everything as it is: what discovery knows is not known here yet.
func (s state) unknowing() plan {
	if s.object.Status.Phase != "" && s.object.Status.Phase != v1alpha1.Pending {
		return plan{status: s.object.Status}
	}
	waitsFor := "the first look at the file systems"
	if s.targets.Trouble != "" {
		waitsFor = s.targets.Trouble
	}
	return s.says(v1alpha1.Pending, "Waiting", "waiting for "+waitsFor)
}

// judged is what to say while nothing is to be done.
func (s state) judged(t trouble) plan {
	switch {
	case t.hopeless:
		p := s.says(v1alpha1.Failed, t.reason, t.text)
		p.lookAgain = t.unknown
		return p
	case s.serves():
		p := s.says(v1alpha1.Ready, "Bound", t.text)
		p.warning, p.lookAgain = t.text, t.unknown
		return p
	}
	return s.unsettled(t, "")
}

// unsettled is what to say until the claim is bound.
func (s state) unsettled(t trouble, repair string) plan {
	claim := s.claim
	switch {
	case t.reason != "":
		p := s.says(v1alpha1.Pending, t.reason, t.text)
		if t.hopeless {
			p = s.says(v1alpha1.Failed, t.reason, t.text)
		}
		p.warning, p.lookAgain = t.text, t.unknown
		return p
	case claim != nil && claim.DeletionTimestamp != nil:
		return s.says(v1alpha1.Pending, "Repairing", fmt.Sprintf("somebody has deleted claim %s: it goes when no pod uses it, and is then made anew", claim.Name))
	case s.object.Status.ClaimRef != nil && repair != "":
		return s.says(v1alpha1.Pending, "Repairing", "claim and volume are being repaired: "+repair)
	case claim != nil && s.volume != nil:
		return s.says(v1alpha1.Pending, "Binding", fmt.Sprintf("claim %s is being bound", claim.Name))
	}
	return s.says(v1alpha1.Pending, "Provisioning", beingMade)
}

// next is the step towards a claim and a volume that are right.
func (s state) next() plan {
	if s.volume == nil {
		p := plan{step: createVolume, volume: newVolume(s.object, s.port(), "")}
		if s.claim != nil {
			p.volume.Spec.ClaimRef.UID = s.claim.UID
		}
		p.repair = s.ifMadeBefore("the volume was missing")
		return p
	}
	if why := leadsElsewhere(s.object, s.volume); why != "" {
		return s.replacing(why)
	}
	if s.volume.DeletionTimestamp != nil {
		return s.outliving()
	}
	if next := mended(s.object, s.volume, s.claim, s.port()); !equality.Semantic.DeepEqual(next, s.volume) {
		return plan{step: updateVolume, volume: next, repair: "the volume was not as it should be"}
	}
	return s.nextOfClaim()
}

func (s state) nextOfClaim() plan {
	if s.claim == nil {
		return plan{step: createClaim, claim: newClaim(s.object), repair: s.ifMadeBefore("the claim was missing")}
	}
	if s.claim.Annotations[wellknown.AnnotationSharedVolume] != nameOf(s.object) {
		next := s.claim.DeepCopy()
		next.Annotations = labels.Merge(next.Annotations, newClaim(s.object).Annotations)
		return plan{step: annotateClaim, claim: next, repair: "the claim's annotation was missing"}
	}
	return s.waking()
}

// waking has the binder look at a claim that has its volume again, and does not know it yet.
func (s state) waking() plan {
	again := string(s.volume.UID)
	isLost := s.claim.Status.Phase == corev1.ClaimLost && s.volume.Status.Phase == corev1.VolumeBound
	if !isLost || s.claim.Annotations[wellknown.AnnotationVolumeUID] == again {
		return plan{}
	}
	next := s.claim.DeepCopy()
	next.Annotations = labels.Merge(next.Annotations, map[string]string{wellknown.AnnotationVolumeUID: again})
	return plan{step: annotateClaim, claim: next, repair: "the claim had lost its volume"}
}

// ifMadeBefore tells a repair from the first making.
func (s state) ifMadeBefore(what string) string {
	if s.object.Status.ClaimRef == nil {
		return ""
	}
	return what
}

// replacing removes what cannot be mended; what is missing is made by a later look.
func (s state) replacing(why string) plan {
	switch {
	case s.claim != nil && s.claim.DeletionTimestamp == nil:
		return plan{step: deleteClaim, repair: why}
	case s.claim == nil && s.volume.DeletionTimestamp == nil:
		return plan{step: deleteVolume, repair: why}
	}
	return plan{}
}

// outliving is about a volume that somebody deleted while its claim is in use. The cluster would
// keep it, on its way out, until the claim is deleted, and with it the claim's pods could never
// be replaced. It is let go and made anew at once, for the same claim; mounts do not notice.
func (s state) outliving() plan {
	protected := slices.Contains(s.volume.Finalizers, wellknown.FinalizerVolumeProtection)
	if !protected || s.claim == nil || s.claim.DeletionTimestamp != nil {
		return plan{}
	}
	return plan{step: letVolumeGo, repair: "somebody has deleted the volume"}
}

// ending takes claim, volume and finalizer away, in this order. Data stays where it is.
func (s state) ending() plan {
	if !slices.Contains(s.object.Finalizers, wellknown.FinalizerSharedVolume) {
		return plan{status: s.object.Status}
	}
	if s.ownsClaim() {
		p := s.says(v1alpha1.Deleting, "ClaimInUse", fmt.Sprintf("claim %s goes when no pod uses it", s.claim.Name))
		if s.claim.DeletionTimestamp == nil {
			p.step = deleteClaim
		}
		return p
	}
	if s.ownsVolume() {
		p := s.says(v1alpha1.Deleting, "VolumeGoes", fmt.Sprintf("volume %s is being deleted", s.volume.Name))
		if s.volume.DeletionTimestamp == nil {
			p.step = deleteVolume
		}
		return p
	}
	return plan{step: removeFinalizer, status: s.object.Status}
}
