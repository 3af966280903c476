package sharedvolumes

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/apis/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// state is what is known of one object. What is in it belongs to the caches: nobody changes it.
type state struct {
	settings Settings
	targets  targets.Snapshot
	now      time.Time

	object *v1alpha1.SharedVolume        // nil when it is gone
	volume *corev1.PersistentVolume      // with the object's volume's name, whosever it is; nil if none
	claim  *corev1.PersistentVolumeClaim // likewise
}

// ownsVolume says whether the volume was made for the object. One whose annotation somebody took
// off is known by the claim that is bound to it.
func (s state) ownsVolume() bool {
	if s.volume == nil {
		return false
	}
	owner, ok := s.volume.Annotations[wellknown.AnnotationSharedVolume]
	if ok {
		return owner == nameOf(s.object)
	}
	return s.areBound() && s.claim.Annotations[wellknown.AnnotationSharedVolume] == nameOf(s.object)
}

// ownsClaim is the same for the claim. One that names another volume was never made by us, and may
// have somebody's data.
func (s state) ownsClaim() bool {
	if s.claim == nil || s.claim.Spec.VolumeName != volumeName(s.object) {
		return false
	}
	owner, ok := s.claim.Annotations[wellknown.AnnotationSharedVolume]
	if ok {
		return owner == nameOf(s.object)
	}
	return s.areBound() && s.volume.Annotations[wellknown.AnnotationSharedVolume] == nameOf(s.object)
}

// areBound says whether volume and claim name each other.
func (s state) areBound() bool {
	if s.volume == nil || s.claim == nil || s.volume.Spec.ClaimRef == nil {
		return false
	}
	return s.claim.Spec.VolumeName == s.volume.Name && s.volume.Spec.ClaimRef.UID == s.claim.UID && s.claim.UID != ""
}

// serves says whether pods can use the claim.
func (s state) serves() bool {
	return s.ownsClaim() && s.areBound() && s.claim.DeletionTimestamp == nil &&
		s.claim.Status.Phase == corev1.ClaimBound && s.volume.Status.Phase == corev1.VolumeBound
}

// taken says who has a name that the object needs, or "".
func (s state) taken() string {
	const way = "; delete what is in the way, or make this SharedVolume anew under another name"
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

// trouble is what keeps pods from the data, as far as discovery knows.
type trouble struct {
	reason   string // of the condition; "" for no trouble
	text     string
	hopeless bool // somebody has to do something
	unknown  bool // discovery should look again
}

func (s state) trouble() trouble {
	id := s.object.Spec.FileSystemID
	candidate, ok := s.targets.FileSystems[id]
	switch {
	case s.targets.Gone[id]:
		return trouble{"FileSystemGone", fmt.Sprintf("file system %s does not exist any longer", id), true, false}
	case !ok:
		return trouble{"FileSystemUnknown", fmt.Sprintf("file system %s is not known: it does not exist, or the manager's settings leave it out", id), false, true}
	case candidate.Unusable != "":
		return trouble{"FileSystemUnusable", fmt.Sprintf("file system %s: %s", id, candidate.Unusable), false, false}
	}
	return s.tunnelTrouble()
}

func (s state) tunnelTrouble() trouble {
	key := keyOf(s.object)
	tunnel, ok := s.targets.Tunnels[key]
	switch {
	case key.AccessPoint != "" && !ok:
		return trouble{"AccessPointUnknown", fmt.Sprintf("access point %s is being looked up", key.AccessPoint), false, false}
	case tunnel.Problem != "":
		return trouble{"AccessPointUnusable", tunnel.Problem, tunnel.Hopeless, true}
	case s.port() == 0:
		return trouble{"NoPort", fmt.Sprintf("%s has no local port yet; the events of ConfigMap %s say why", key, wellknown.TargetsConfigMap), false, false}
	case s.object.Spec.IAM && !tunnel.IAM:
		return trouble{"NoIdentity", fmt.Sprintf("the tunnel of %s does not show who it is yet", key), false, false}
	}
	return trouble{}
}

// port is that of the object's tunnel, 0 while it has none.
func (s state) port() int {
	if key := keyOf(s.object); key.AccessPoint != "" {
		return s.targets.Tunnels[key].Port
	}
	return s.targets.Port(s.object.Spec.FileSystemID)
}
