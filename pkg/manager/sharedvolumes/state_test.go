package sharedvolumes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func point() ports.Key { return ports.Key{FileSystem: "fs-1", AccessPoint: "fsap-1"} }

func shared(namespace, name string, edits ...func(*v1alpha1.SharedVolume)) *v1alpha1.SharedVolume {
	o := &v1alpha1.SharedVolume{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1, Finalizers: []string{wellknown.FinalizerSharedVolume}},
		Spec:       v1alpha1.SharedVolumeSpec{FileSystemID: "fs-1", AccessPointID: "fsap-1"},
	}
	for _, edit := range edits {
		edit(o)
	}
	return o
}

func ofPath(path string) func(*v1alpha1.SharedVolume) {
	return func(o *v1alpha1.SharedVolume) { o.Spec.AccessPointID, o.Spec.Path = "", path }
}

// known has a file system and an access point that can be used.
func known() targets.Snapshot {
	return targets.Snapshot{
		Known:       true,
		FileSystems: map[string]volumes.Candidate{"fs-1": {ID: "fs-1", Port: 20490}},
		Tunnels:     map[ports.Key]targets.Tunnel{point(): {Port: 20491}},
	}
}

// stateWith returns a state of team/data in which nothing was created yet.
func stateWith(edits ...func(*state)) state {
	s := state{object: shared("team", "data"), targets: known(), now: noon}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// bound adds claim and volume as they are when everything is done.
func bound(s *state) {
	s.volume, s.claim = newPair(s.object, s.port())
	s.volume.Spec.ClaimRef.UID = "claim"
	s.claim.UID, s.volume.UID = "claim", "volume"
	s.claim.Status.Phase, s.volume.Status.Phase = corev1.ClaimBound, corev1.VolumeBound
	s.volume.Finalizers = []string{wellknown.FinalizerVolumeProtection}
	s.object.Status.ClaimRef = &v1alpha1.ClaimReference{Name: "pvc-data"}
}

func others(s *state) { s.targets.Others = map[string]string{"fs-1": "elsewhere"} }

func object(edit func(*v1alpha1.SharedVolume)) func(*state) {
	return func(s *state) { edit(s.object) }
}

func volume(edit func(*corev1.PersistentVolume)) func(*state) {
	return func(s *state) { edit(s.volume) }
}

func claim(edit func(*corev1.PersistentVolumeClaim)) func(*state) {
	return func(s *state) { edit(s.claim) }
}

func deleted(o metav1.Object) { o.SetDeletionTimestamp(&metav1.Time{Time: noon}) }

func objectDeleted(s *state) { deleted(s.object) }
func volumeDeleted(s *state) { deleted(s.volume) }
func claimDeleted(s *state)  { deleted(s.claim) }
func volumeGone(s *state)    { s.volume = nil }
func claimGone(s *state)     { s.claim = nil }

func lost(s *state) { s.volume, s.claim.Status.Phase = nil, corev1.ClaimLost }

func tunnel(t targets.Tunnel) func(*state) {
	return func(s *state) { s.targets.Tunnels = map[ports.Key]targets.Tunnel{point(): t} }
}

func candidate(c volumes.Candidate) func(*state) {
	return func(s *state) { s.targets.FileSystems = map[string]volumes.Candidate{"fs-1": c} }
}

// apply makes the plan's changes, and does what the cluster does after them.
func apply(s state, p plan) state {
	s.object = s.object.DeepCopy()
	s.object.Status = p.status
	for _, change := range p.changes {
		switch change.Action {
		case addFinalizer:
			s.object.Finalizers = []string{wellknown.FinalizerSharedVolume}
		case volumes.CreateVolume, volumes.UpdateVolume:
			s.volume = change.Volume
		case volumes.UnprotectVolume:
			s.volume, s.claim = nil, s.claim.DeepCopy()
			s.claim.Status.Phase = corev1.ClaimLost
		case volumes.DeleteVolume:
			s.volume = nil
		case volumes.CreateClaim:
			s.claim = change.Claim
			s.claim.UID, s.claim.Status.Phase = types.UID("claim"), corev1.ClaimPending
		case volumes.UpdateClaim:
			s.claim = change.Claim
		case volumes.DeleteClaim:
			s.claim = nil
		case removeFinalizer:
			s.object = nil
		}
	}
	return bind(s)
}

// bind is the cluster's binder.
func bind(s state) state {
	if s.volume == nil || s.claim == nil || s.claim.DeletionTimestamp != nil {
		return s
	}
	ref := s.volume.Spec.ClaimRef
	if ref == nil || ref.UID != "" && ref.UID != s.claim.UID || ref.UID == "" && s.claim.Status.Phase != corev1.ClaimPending {
		return s
	}
	s.volume, s.claim = s.volume.DeepCopy(), s.claim.DeepCopy()
	s.volume.Spec.ClaimRef.UID = s.claim.UID
	s.volume.Status.Phase, s.claim.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
	return s
}
