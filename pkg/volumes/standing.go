package volumes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Standing says whether a claim wants a volume of us now.
type Standing int

// The standings. Only Ours may be refused or provisioned; the others are no fault of the claim.
const (
	NotOurs Standing = iota // nobody's, another provisioner's, or done with
	Waiting                 // ours, but something has to happen first
	Ours
)

// Judge says how a claim stands, and for Waiting what it waits for. The class is the one that
// ClassName names, nil while there is none.
func Judge(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, provisioner string) (standing Standing, waitsFor string) {
	if !wantsVolume(claim) || AskedProvisioner(claim) != provisioner || isPopulated(claim) {
		return NotOurs, ""
	}
	switch {
	case ClassName(claim) == "":
		return NotOurs, ""
	case class == nil:
		return Waiting, fmt.Sprintf("storage class %s to exist", quoted(ClassName(claim)))
	case class.Provisioner != provisioner:
		return NotOurs, ""
	case waitsForNode(class) && SelectedNode(claim) == "":
		return Waiting, "the scheduler to choose a node for the first pod"
	}
	return Ours, ""
}

// wantsVolume says that a claim is neither bound, nor about to be, nor going away.
func wantsVolume(claim *corev1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && claim.Status.Phase == corev1.ClaimPending
}

// ClassName is the name of a claim's class: the old annotation wins, even when it is empty, as
// it does for the cluster's binder.
func ClassName(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[wellknown.AnnotationStorageClass]; ok {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}

// AskedProvisioner is whom the cluster has asked for the volume. Without that, the binder may
// still find one that exists.
func AskedProvisioner(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[wellknown.AnnotationStorageProvisioner]; ok {
		return name
	}
	return claim.Annotations[wellknown.AnnotationBetaStorageProvisioner]
}

// SelectedNode is the node that the scheduler chose, or "".
func SelectedNode(claim *corev1.PersistentVolumeClaim) string {
	return claim.Annotations[wellknown.AnnotationSelectedNode]
}

func waitsForNode(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// snapshotGroup and the core group hold the sources that provisioners copy themselves; all
// others are populators'.
const snapshotGroup = "snapshot.storage.k8s.io"

// isPopulated says that a populator will bring the volume, filled.
func isPopulated(claim *corev1.PersistentVolumeClaim) bool {
	group := ""
	switch spec := claim.Spec; {
	case spec.DataSourceRef != nil && spec.DataSourceRef.APIGroup != nil:
		group = *spec.DataSourceRef.APIGroup
	case spec.DataSourceRef == nil && spec.DataSource != nil && spec.DataSource.APIGroup != nil:
		group = *spec.DataSource.APIGroup
	}
	return group != "" && group != snapshotGroup
}
