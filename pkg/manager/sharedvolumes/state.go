package sharedvolumes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
)

// state is the observed state of one SharedVolume. Its objects belong to the caches and are never changed.
type state struct {
	settings Settings
	targets  targets.Snapshot
	now      time.Time

	object *v1alpha1.SharedVolume        // nil when it is gone
	volume *corev1.PersistentVolume      // of the volume's name, whoever owns it; nil if there is none
	claim  *corev1.PersistentVolumeClaim // of the claim's name, likewise
}

// ownsVolume reports whether the volume was created for the object.
func (s state) ownsVolume() bool { return s.volume != nil && s.owns(s.volume, s.claim) }

// ownsClaim reports whether the claim was created for the object. A claim that names another volume was never
// created for the object, and may have a user's data.
func (s state) ownsClaim() bool {
	return s.claim != nil && s.claim.Spec.VolumeName == volumeName(s.object) && s.owns(s.claim, s.volume)
}

// owns compares the annotation of one half of the pair. Without any, the other half has it, if the two
// are bound to each other.
func (s state) owns(half, other metav1.Object) bool {
	owner, ok := half.GetAnnotations()[wellknown.AnnotationSharedVolume]
	if !ok && s.areBound() {
		owner = other.GetAnnotations()[wellknown.AnnotationSharedVolume]
	}
	return owner == nameOf(s.object)
}

// areBound reports whether volume and claim name each other.
func (s state) areBound() bool {
	if s.volume == nil || s.claim == nil || s.volume.Spec.ClaimRef == nil {
		return false
	}
	return s.claim.Spec.VolumeName == s.volume.Name && s.volume.Spec.ClaimRef.UID == s.claim.UID && s.claim.UID != ""
}

// serves reports whether pods can use the claim.
func (s state) serves() bool {
	return s.ownsClaim() && s.areBound() && s.claim.DeletionTimestamp == nil &&
		s.claim.Status.Phase == corev1.ClaimBound && s.volume.Status.Phase == corev1.VolumeBound
}

// conflict names the other owner of a name that the object needs, or "".
func (s state) conflict() string {
	const way = "; delete what is in the way, or create this SharedVolume again under another name"
	if s.volume != nil && !s.ownsVolume() {
		if owner, ok := s.volume.Annotations[wellknown.AnnotationSharedVolume]; ok {
			return fmt.Sprintf("PersistentVolume %s is that of SharedVolume %s%s", s.volume.Name, owner, way)
		}
		return fmt.Sprintf("PersistentVolume %s exists and was not made for this SharedVolume%s", s.volume.Name, way)
	}
	if s.claim != nil && !s.ownsClaim() {
		return fmt.Sprintf("PersistentVolumeClaim %s exists and was not made for this SharedVolume%s", s.claim.Name, way)
	}
	return ""
}

// problem keeps pods from the data, as far as discovery knows.
type problem struct {
	reason   string // of the condition; "" for no problem
	message  string
	terminal bool // only an edit helps
	unknown  bool // another poll of the EFS API may help
}

func (s state) problem() problem {
	id, key := s.object.Spec.FileSystemID, keyOf(s.object)
	candidate, known := s.targets.FileSystems[id]
	tunnel, asked := s.targets.Tunnels[key]
	switch {
	case s.targets.Gone[id]:
		return problem{"FileSystemGone", fmt.Sprintf("file system %s does not exist any longer", id), true, false}
	case !known && s.targets.Excluded[id] != "":
		return problem{"FileSystemUnknown", fmt.Sprintf("file system %s exists, but %s", id, s.targets.Excluded[id]), false, true}
	case !known:
		return problem{"FileSystemUnknown", fmt.Sprintf("file system %s is not known: it does not exist, or the manager's settings leave it out", id), false, true}
	case candidate.Unusable != "":
		return problem{"FileSystemUnusable", fmt.Sprintf("file system %s: %s", id, candidate.Unusable), false, false}
	case key.AccessPoint != "" && !asked:
		return problem{"AccessPointUnknown", fmt.Sprintf("access point %s is being looked up", key.AccessPoint), false, false}
	case tunnel.Problem != "":
		return problem{"AccessPointUnusable", tunnel.Problem, tunnel.Terminal, true}
	case s.port() == 0:
		return problem{"NoPort", fmt.Sprintf("%s has no local port yet; the events of ConfigMap %s say why", key, wellknown.TargetsConfigMap), false, false}
	case s.object.Spec.IAM && !tunnel.IAM:
		return problem{"NoIdentity", fmt.Sprintf("the tunnel of %s does not present an IAM identity yet", key), false, false}
	}
	return problem{}
}

// port returns the local port of the object's tunnel, 0 while it has none.
func (s state) port() int {
	if key := keyOf(s.object); key.AccessPoint != "" {
		return s.targets.Tunnels[key].Port
	}
	return s.targets.Port(s.object.Spec.FileSystemID)
}
