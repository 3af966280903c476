package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// RootPair is a file system's root volume and root claim, as they are; nil where there is none.
type RootPair struct {
	FileSystemID string
	Port         int    // of its tunnel; 0 while it has none
	Namespace    string // the manager's
	Volume       *corev1.PersistentVolume
	Claim        *corev1.PersistentVolumeClaim
}

// RootAction is what to do with one of the two objects.
type RootAction string

// The actions. What is deleted is made again by a later look, when it is gone. Before its
// claim is deleted, finished mount Jobs must be, because their pods hold it.
const (
	CreateRootVolume RootAction = "create volume"
	UpdateRootVolume RootAction = "update volume"
	DeleteRootVolume RootAction = "delete volume"
	CreateRootClaim  RootAction = "create claim"
	DeleteRootClaim  RootAction = "delete claim"
)

// RootCorrection is one thing to put right.
type RootCorrection struct {
	Action RootAction
	Why    string
	Volume *corev1.PersistentVolume      // to create or update, complete
	Claim  *corev1.PersistentVolumeClaim // to create
}

// Corrections say what is wrong with a pair, in the order in which to mend it; none if nothing
// is, or if only time can help. The volume comes first, so that no claim is ever without it.
//
//	volume                claim                      corrections
//	missing               any                        create volume, …
//	being deleted         there                      delete claim, which holds it
//	another source        any                        delete claim, delete volume
//	wrong otherwise       any                        update volume, …
//	right                 missing                    create claim
//	right                 Lost or of another volume  delete claim
//	right                 right                      none
func (p RootPair) Corrections() []RootCorrection {
	if p.Port == 0 {
		return nil // no volume could name it, and what is there names another
	}
	if p.Volume != nil && p.Volume.DeletionTimestamp != nil {
		return p.deleteClaim("its volume is being deleted")
	}
	if why := p.foreignSource(); why != "" {
		return append(p.deleteClaim(why), RootCorrection{Action: DeleteRootVolume, Why: why})
	}
	return append(p.volumeCorrections(), p.claimCorrections()...)
}

// Ready says why no Job may use the claim now, or "".
func (p RootPair) Ready() (why string) {
	switch corrections := p.Corrections(); {
	case p.Port == 0:
		return "the file system has no local port yet"
	case len(corrections) > 0:
		return fmt.Sprintf("%s %s: %s", corrections[0].Action, RootName(p.FileSystemID), corrections[0].Why)
	case p.Volume == nil || p.Volume.DeletionTimestamp != nil:
		return "the root volume is being deleted"
	case p.Claim.DeletionTimestamp != nil:
		return "the root claim is being deleted"
	case p.Claim.Status.Phase != corev1.ClaimBound || p.Volume.Status.Phase != corev1.VolumeBound:
		return "the root claim is not bound yet"
	}
	return ""
}

// foreignSource says why the volume cannot be mended, or "".
func (p RootPair) foreignSource() string {
	if p.Volume == nil {
		return ""
	}
	want := RootVolume(p.FileSystemID, p.Port, p.Namespace)
	if !equality.Semantic.DeepEqual(p.Volume.Spec.PersistentVolumeSource, want.Spec.PersistentVolumeSource) {
		return "the volume leads elsewhere"
	}
	if mode := p.Volume.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return "the volume is not a file system"
	}
	return ""
}

func (p RootPair) volumeCorrections() []RootCorrection {
	if p.Volume == nil {
		return []RootCorrection{{Action: CreateRootVolume, Why: "it is missing", Volume: p.newVolume()}}
	}
	mended := p.mendedVolume()
	if equality.Semantic.DeepEqual(mended, p.Volume) {
		return nil
	}
	return []RootCorrection{{Action: UpdateRootVolume, Why: p.wrongWith(mended), Volume: mended}}
}

// newVolume and newClaim know what the other half of the pair remembers of the trash. Mount Jobs that
// have filled it may be long gone.
func (p RootPair) newVolume() *corev1.PersistentVolume {
	volume := RootVolume(p.FileSystemID, p.Port, p.Namespace)
	if p.Claim != nil {
		carryNextSweep(p.Claim.Annotations, &volume.ObjectMeta)
	}
	return volume
}

func (p RootPair) newClaim() *corev1.PersistentVolumeClaim {
	claim := RootClaim(p.FileSystemID, p.Namespace)
	if p.Volume != nil {
		carryNextSweep(p.Volume.Annotations, &claim.ObjectMeta)
	}
	return claim
}

func carryNextSweep(from map[string]string, to *metav1.ObjectMeta) {
	if next, ok := from[wellknown.AnnotationNextSweep]; ok {
		metav1.SetMetaDataAnnotation(to, wellknown.AnnotationNextSweep, next)
	}
}

// mendedVolume keeps whatever others have added, and what is right already.
func (p RootPair) mendedVolume() *corev1.PersistentVolume {
	want := RootVolume(p.FileSystemID, p.Port, p.Namespace)
	mended := Mend(p.Volume, want)
	mended.Labels = labels.Merge(want.Labels, labels.Merge(mended.Labels, map[string]string{wellknown.LabelFileSystemID: p.FileSystemID}))
	mended.Spec.ClaimRef = p.claimRef(want.Spec.ClaimRef)
	return mended
}

// Mend is a volume with what it should have, but for labels and claimRef. What others have added
// stays, and so do access modes and a size that suffice, and mount options in another spelling.
func Mend(is, want *corev1.PersistentVolume) *corev1.PersistentVolume {
	mended := is.DeepCopy()
	delete(mended.Annotations, corev1.MountOptionAnnotation) // kubelet would read no other options
	mended.Annotations = labels.Merge(mended.Annotations, want.Annotations)
	mended.Spec.PersistentVolumeReclaimPolicy = want.Spec.PersistentVolumeReclaimPolicy
	mended.Spec.StorageClassName = want.Spec.StorageClassName
	if !sameMountOptions(is.Spec.MountOptions, want.Spec.MountOptions) {
		mended.Spec.MountOptions = want.Spec.MountOptions
	}
	if !slices.Contains(mended.Spec.AccessModes, want.Spec.AccessModes[0]) {
		mended.Spec.AccessModes = want.Spec.AccessModes
	}
	if mended.Spec.Capacity.Storage().Cmp(*want.Spec.Capacity.Storage()) < 0 {
		mended.Spec.Capacity = want.Spec.Capacity
	}
	return mended
}

// claimRef is never cleared: only the uid of a claim that is gone goes, and so the binder
// takes the next root claim for the one that the volume was made for.
func (p RootPair) claimRef(want *corev1.ObjectReference) *corev1.ObjectReference {
	is := p.Volume.Spec.ClaimRef
	if is == nil || is.Namespace != want.Namespace || is.Name != want.Name || is.Kind != want.Kind {
		return want
	}
	kept := *is
	if kept.UID != "" && (p.Claim == nil || p.Claim.UID != kept.UID) {
		kept.UID, kept.ResourceVersion = "", ""
	}
	return &kept
}

// wrongWith names what an update mends.
func (p RootPair) wrongWith(mended *corev1.PersistentVolume) string {
	switch is := p.Volume.Spec; {
	case is.ClaimRef == nil:
		return "any claim could have it"
	case is.ClaimRef.Namespace != mended.Spec.ClaimRef.Namespace || is.ClaimRef.Name != mended.Spec.ClaimRef.Name:
		return fmt.Sprintf("claim %s/%s has it", is.ClaimRef.Namespace, is.ClaimRef.Name)
	case is.ClaimRef.UID != mended.Spec.ClaimRef.UID:
		return "it waits for a root claim that is gone"
	case !slices.Equal(is.MountOptions, mended.Spec.MountOptions):
		return "its mount options are not those of a root volume"
	}
	return "it was edited"
}

func (p RootPair) claimCorrections() []RootCorrection {
	switch {
	case p.Claim == nil:
		return []RootCorrection{{Action: CreateRootClaim, Why: "it is missing", Claim: p.newClaim()}}
	case p.Claim.Status.Phase == corev1.ClaimLost:
		return p.deleteClaim("it has lost its volume")
	case p.Claim.Spec.VolumeName != RootName(p.FileSystemID):
		return p.deleteClaim("it is for another volume")
	case ClassName(p.Claim) != wellknown.RootStorageClass:
		return p.deleteClaim("it is of another storage class")
	}
	return nil
}

// deleteClaim leaves alone what is going or gone.
func (p RootPair) deleteClaim(why string) []RootCorrection {
	if p.Claim == nil || p.Claim.DeletionTimestamp != nil {
		return nil
	}
	return []RootCorrection{{Action: DeleteRootClaim, Why: why}}
}
