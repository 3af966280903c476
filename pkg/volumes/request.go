package volumes

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// IsRequested reports whether a claim asks this provisioner for a volume now: it is neither bound, nor about to
// be, nor being deleted, and has a class of the provisioner and, if that waits for its first consumer, a node.
// Other claims are neither refused nor provisioned. The class is the one that ClassName names, nil while there is
// none.
func IsRequested(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, provisioner string) bool {
	switch {
	case claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || claim.Status.Phase != corev1.ClaimPending:
		return false
	case AskedProvisioner(claim) != provisioner || OtherMaker(claim) != "":
		return false
	case ClassName(claim) == "" || class == nil || class.Provisioner != provisioner:
		return false
	}
	return !waitsForNode(class) || SelectedNode(claim) != ""
}

// ClassName returns the name of a claim's class: the old annotation wins, even when it is empty, as
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

// AskedProvisioner returns the provisioner that the cluster has asked for the volume, or "". Until then,
// the binder may bind the claim to an existing volume.
func AskedProvisioner(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[wellknown.AnnotationStorageProvisioner]; ok {
		return name
	}
	return claim.Annotations[wellknown.AnnotationBetaStorageProvisioner]
}

// SelectedNode returns the node that the scheduler chose, or "".
func SelectedNode(claim *corev1.PersistentVolumeClaim) string {
	return claim.Annotations[wellknown.AnnotationSelectedNode]
}

func waitsForNode(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// snapshotGroup and the core group have the data sources that provisioners copy. Those of other groups
// are for volume populators.
const snapshotGroup = "snapshot.storage.k8s.io"

// labelVeleroRestore is in the selector of a claim that Velero's data mover restores. Velero fills a volume of
// another claim, and then binds it to this one, if that is not bound.
const labelVeleroRestore = "velero.io/dynamic-pv-restore"

// OtherMaker returns the program that makes a claim's volume in place of its provisioner, "" if there is none.
func OtherMaker(claim *corev1.PersistentVolumeClaim) string {
	if _, ok := matchLabels(claim)[labelVeleroRestore]; ok {
		return "Velero's data mover"
	}
	if group := dataSourceOf(claim.Spec).group; group != "" && group != snapshotGroup {
		return "a volume populator"
	}
	return ""
}
