package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Pair is a volume and the claim that it is reserved for, and what they should be.
type Pair struct {
	Volume     *corev1.PersistentVolume      // nil if there is none
	Claim      *corev1.PersistentVolumeClaim // nil if there is none
	WantVolume *corev1.PersistentVolume
	WantClaim  *corev1.PersistentVolumeClaim
	// KeepClaim says that users' pods mount the claim, so that it is updated, and kept when its volume
	// is created again. Otherwise a claim that is wrong is deleted and created again.
	KeepClaim bool
}

// Action is the kind of one write of the volume or the claim.
type Action string

// The actions. Finished mount Jobs must be deleted before the root claim, because their pods protect it.
const (
	CreateVolume    Action = "create volume"
	UpdateVolume    Action = "update volume"
	UnprotectVolume Action = "unprotect volume" // removes the finalizer that protects it
	DeleteVolume    Action = "delete volume"
	CreateClaim     Action = "create claim"
	UpdateClaim     Action = "update claim"
	DeleteClaim     Action = "delete claim"
)

// Change is one write.
type Change struct {
	Action Action
	Why    string
	Volume *corev1.PersistentVolume      // to create or update, complete
	Claim  *corev1.PersistentVolumeClaim // to create or update, complete
}

func (c Change) String() string { return fmt.Sprintf("%s: %s", c.Action, c.Why) }

// Changes returns the next writes that correct a pair, in order; none if it is right, or waits for another
// controller. What they delete is created again by a later plan. A volume is created alone: a binder
// that observes the claim before the volume retries the claim only after 15 seconds, and its two
// watches are independent.
//
//	volume          claim               KeepClaim                      otherwise
//	missing         any                 create volume, with its uid    create volume
//	another source  there               delete claim                   delete claim, delete volume
//	another source  missing             delete volume                  delete volume
//	being deleted   there               unprotect volume               delete claim
//	edited          any                 update volume, …               update volume, …
//	right           missing             create claim                   create claim
//	right           Lost                update claim                   delete claim
//	right           edited              update claim                   delete claim, if it cannot be bound
//	right           right               none                           none
func (p Pair) Changes() []Change {
	if p.Volume == nil {
		return []Change{{Action: CreateVolume, Why: "it is missing", Volume: p.newVolume()}}
	}
	beingDeleted := p.Volume.DeletionTimestamp != nil
	if beingDeleted && !p.KeepClaim {
		return p.deleteClaim("its volume is being deleted")
	}
	if why := p.wrongSource(); why != "" {
		return p.replace(why)
	}
	if beingDeleted {
		return p.unprotect()
	}
	return append(p.volumeChanges(), p.claimChanges()...)
}

// newVolume returns the volume with the uid of a claim that is kept. Without it, the binder would leave the claim Lost.
func (p Pair) newVolume() *corev1.PersistentVolume {
	volume := p.WantVolume.DeepCopy()
	if p.KeepClaim && p.Claim != nil {
		volume.Spec.ClaimRef.UID = p.Claim.UID
	}
	return volume
}

// wrongSource returns why the volume must be replaced, or "": its source is immutable.
func (p Pair) wrongSource() string {
	if !equality.Semantic.DeepEqual(p.Volume.Spec.PersistentVolumeSource, p.WantVolume.Spec.PersistentVolumeSource) {
		return "the volume has another source"
	}
	if mode := p.Volume.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return "the volume is not a file system"
	}
	return ""
}

// replace deletes both. A volume whose claim pods may mount is deleted only after the claim is gone.
func (p Pair) replace(why string) []Change {
	changes := p.deleteClaim(why)
	if p.Volume.DeletionTimestamp == nil && (p.Claim == nil || !p.KeepClaim) {
		changes = append(changes, Change{Action: DeleteVolume, Why: why})
	}
	return changes
}

// unprotect removes the finalizer of a volume that was deleted while its claim is in use. Kubernetes
// would keep the volume until the claim is deleted, and no pod could start with it. Without the
// finalizer, the volume can be created again for the same claim. Existing mounts are not affected.
func (p Pair) unprotect() []Change {
	protected := slices.Contains(p.Volume.Finalizers, wellknown.FinalizerVolumeProtection)
	if !protected || p.Claim == nil || p.Claim.DeletionTimestamp != nil {
		return nil
	}
	volume := p.Volume.DeepCopy()
	volume.Finalizers = slices.DeleteFunc(volume.Finalizers, func(f string) bool { return f == wellknown.FinalizerVolumeProtection })
	return []Change{{Action: UnprotectVolume, Why: "it is being deleted", Volume: volume}}
}

func (p Pair) volumeChanges() []Change {
	volume := p.correctedVolume()
	if equality.Semantic.DeepEqual(volume, p.Volume) {
		return nil
	}
	return []Change{{Action: UpdateVolume, Why: p.updateReason(volume), Volume: volume}}
}

// correctedVolume keeps annotations and labels of other clients, access modes and a size that
// suffice, and mount options in another spelling.
func (p Pair) correctedVolume() *corev1.PersistentVolume {
	is, want, next := p.Volume, p.WantVolume, p.Volume.DeepCopy()
	delete(next.Annotations, corev1.MountOptionAnnotation) // kubelet would read no other options
	next.Annotations = labels.Merge(next.Annotations, want.Annotations)
	if _, shared := want.Annotations[wellknown.AnnotationSharedVolume]; shared && want.Annotations[wellknown.AnnotationAccessPointID] == "" {
		delete(next.Annotations, wellknown.AnnotationAccessPointID) // ports would correct its port to the access point's
	}
	next.Labels = labels.Merge(next.Labels, want.Labels)
	next.Spec.PersistentVolumeReclaimPolicy = want.Spec.PersistentVolumeReclaimPolicy
	next.Spec.StorageClassName = want.Spec.StorageClassName
	if !slices.Equal(kernelSpellings(is.Spec.MountOptions), kernelSpellings(want.Spec.MountOptions)) {
		next.Spec.MountOptions = want.Spec.MountOptions
	}
	if !slices.Contains(next.Spec.AccessModes, want.Spec.AccessModes[0]) {
		next.Spec.AccessModes = want.Spec.AccessModes
	}
	if next.Spec.Capacity.Storage().Cmp(*want.Spec.Capacity.Storage()) < 0 {
		next.Spec.Capacity = want.Spec.Capacity
	}
	next.Spec.ClaimRef = p.claimRef()
	return next
}

// claimRef always has a name: without one, the binder could bind the volume to any claim. The binder
// writes its uid. The uid of a claim that is gone is removed, so that the binder binds the next claim
// with the name. For a kept claim that was bound before, the binder does not write the uid.
func (p Pair) claimRef() *corev1.ObjectReference {
	is, want := p.Volume.Spec.ClaimRef, p.WantVolume.Spec.ClaimRef
	if is == nil || is.Namespace != want.Namespace || is.Name != want.Name || is.Kind != want.Kind {
		is = want
	}
	ref := *is
	switch {
	case p.Claim != nil && p.Claim.UID == ref.UID:
	case p.KeepClaim && p.Claim != nil && p.Claim.Status.Phase != corev1.ClaimPending:
		ref.UID, ref.ResourceVersion = p.Claim.UID, ""
	case ref.UID != "":
		ref.UID, ref.ResourceVersion = "", ""
	}
	return &ref
}

func (p Pair) updateReason(next *corev1.PersistentVolume) string {
	switch is, ref := p.Volume.Spec, next.Spec.ClaimRef; {
	case is.ClaimRef == nil:
		return "any claim could have it"
	case is.ClaimRef.Namespace != ref.Namespace || is.ClaimRef.Name != ref.Name:
		return fmt.Sprintf("claim %s/%s has it", is.ClaimRef.Namespace, is.ClaimRef.Name)
	case is.ClaimRef.UID != ref.UID:
		return "its claimRef has the wrong uid"
	case !slices.Equal(is.MountOptions, next.Spec.MountOptions):
		return "its mount options were edited"
	}
	return "it was edited"
}

func (p Pair) claimChanges() []Change {
	switch {
	case p.Claim == nil:
		return []Change{{Action: CreateClaim, Why: "it is missing", Claim: p.WantClaim}}
	case p.KeepClaim:
		return p.updateClaim()
	case p.Claim.Status.Phase == corev1.ClaimLost:
		return p.deleteClaim("it has lost its volume")
	case p.Claim.Spec.VolumeName != p.WantClaim.Spec.VolumeName:
		return p.deleteClaim("it is for another volume")
	case ClassName(p.Claim) != ClassName(p.WantClaim):
		return p.deleteClaim("it is of another storage class")
	}
	return nil
}

// updateClaim also changes a Lost claim whose volume exists again: only then does the binder bind it.
func (p Pair) updateClaim() []Change {
	claim, why := p.Claim.DeepCopy(), "it was edited"
	claim.Annotations = labels.Merge(claim.Annotations, p.WantClaim.Annotations)
	if claim.Status.Phase == corev1.ClaimLost && p.Volume.Status.Phase == corev1.VolumeBound {
		claim.Annotations[wellknown.AnnotationVolumeUID], why = string(p.Volume.UID), "it has lost its volume"
	}
	if equality.Semantic.DeepEqual(claim, p.Claim) {
		return nil
	}
	return []Change{{Action: UpdateClaim, Why: why, Claim: claim}}
}

// deleteClaim returns the deletion of the claim, none if it is gone or being deleted.
func (p Pair) deleteClaim(why string) []Change {
	if p.Claim == nil || p.Claim.DeletionTimestamp != nil {
		return nil
	}
	return []Change{{Action: DeleteClaim, Why: why}}
}
