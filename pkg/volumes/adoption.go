package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// NeedsAdoption says whether the owner of an Original volume can be recorded in the ledger. Only a
// volume that is bound to its claim has a known owner. The claim is the one with the namespace and
// name of the volume's claimRef, nil if there is none.
func (v Volume) NeedsAdoption(claim *corev1.PersistentVolumeClaim) bool {
	return v.Kind == Original && v.Problem == "" &&
		v.Object.Status.Phase == corev1.VolumeBound && v.Object.DeletionTimestamp == nil &&
		claim != nil && claim.UID != "" && claim.UID == v.ClaimUID &&
		claim.DeletionTimestamp == nil && claim.Spec.VolumeName == v.Name
}

// Adoption is the operation that records the owner of an Original volume in the ledger. The original
// system made the directory, so a cleanup may remove it.
func Adoption(volume Volume, cluster string) operations.Operation {
	return operations.Operation{
		Kind:  operations.Setup,
		Owner: volume.owner(cluster),
		Path:  volume.Path,
		Adopt: true,
		Made:  true,
	}
}

// Adopt makes an Original volume a Provisioned one, after its Adoption is done.
func Adopt(object *corev1.PersistentVolume) {
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, wellknown.AnnotationPath, object.Spec.NFS.Path)
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, wellknown.AnnotationClaimUID, string(object.Spec.ClaimRef.UID))
	metav1.SetMetaDataLabel(&object.ObjectMeta, wellknown.LabelFileSystemID, object.Annotations[wellknown.AnnotationFileSystemID])
	for _, finalizer := range finalizers(object.Spec.PersistentVolumeReclaimPolicy) {
		if !slices.Contains(object.Finalizers, finalizer) {
			object.Finalizers = append(object.Finalizers, finalizer)
		}
	}
}
