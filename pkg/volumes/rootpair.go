package volumes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// Changes are those of the pair, and none without a port: no volume could name it, and an existing
// volume names another.
func (p RootPair) Changes() []Change {
	if p.Port == 0 {
		return nil
	}
	volume, claim := RootVolume(p.FileSystemID, p.Port, p.Namespace), RootClaim(p.FileSystemID, p.Namespace)
	if p.Volume != nil {
		if key, ok := p.Volume.Labels[wellknown.LabelRootKey]; ok {
			volume.Labels[wellknown.LabelRootKey] = key // the original system's stays
		}
	}
	// What one object says of the next sweep must outlive the other: mount Jobs that have filled the
	// trash may be long gone.
	switch {
	case p.Volume == nil && p.Claim != nil:
		carryNextSweep(p.Claim.Annotations, &volume.ObjectMeta)
	case p.Claim == nil && p.Volume != nil:
		carryNextSweep(p.Volume.Annotations, &claim.ObjectMeta)
	}
	return Pair{Volume: p.Volume, Claim: p.Claim, WantVolume: volume, WantClaim: claim}.Changes()
}

func carryNextSweep(from map[string]string, to *metav1.ObjectMeta) {
	if next, ok := from[wellknown.AnnotationNextSweep]; ok {
		metav1.SetMetaDataAnnotation(to, wellknown.AnnotationNextSweep, next)
	}
}

// Ready says why no Job may use the claim now, or "".
func (p RootPair) Ready() (why string) {
	switch changes := p.Changes(); {
	case p.Port == 0:
		return "the file system has no local port yet"
	case len(changes) > 0:
		return fmt.Sprintf("%s %s: %s", changes[0].Action, RootName(p.FileSystemID), changes[0].Why)
	case p.Volume == nil || p.Volume.DeletionTimestamp != nil:
		return "the root volume is being deleted"
	case p.Claim.DeletionTimestamp != nil:
		return "the root claim is being deleted"
	case p.Claim.Status.Phase != corev1.ClaimBound || p.Volume.Status.Phase != corev1.VolumeBound:
		return "the root claim is not bound yet"
	}
	return ""
}
