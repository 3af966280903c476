package volumes

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// NeedsAdoption reports whether the owner of an Original volume can be recorded in the ledger: only a volume that
// is bound to its claim has a known owner. The claim is the one with the namespace and name of the volume's
// claimRef, nil if there is none.
func (v Volume) NeedsAdoption(claim *corev1.PersistentVolumeClaim) bool {
	return v.Kind == Original && v.isBoundTo(claim) && claim.Spec.VolumeName == v.Name
}

// isBoundTo reports whether the volume is bound to a claim that exists. The binder writes that to the volume
// before it names the volume in the claim.
func (v Volume) isBoundTo(claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Object.Spec.ClaimRef
	return v.Problem == "" && v.Object.Status.Phase == corev1.VolumeBound && v.Object.DeletionTimestamp == nil &&
		ref != nil && claim != nil && claim.UID != "" && claim.UID == ref.UID && claim.DeletionTimestamp == nil &&
		(claim.Spec.VolumeName == "" || claim.Spec.VolumeName == v.Name)
}

// IsGiven reports whether a volume is bound to another claim than the ledger's: an administrator has reserved it
// for that claim, or made the claim again. The data is now that claim's, and so its namespace's.
func (v Volume) IsGiven(claim *corev1.PersistentVolumeClaim) bool {
	return v.Kind == Provisioned && v.isBoundTo(claim) && claim.UID != v.ClaimUID &&
		v.Object.Annotations[wellknown.AnnotationGivenTo] != string(claim.UID)
}

// Gift returns the operation that enters the claim that a volume is bound to into the ledger. The owner stays the
// same volume, with whatever right it has to remove the directory.
func Gift(volume Volume, cluster string) operations.Operation {
	operation := Adoption(volume, cluster)
	operation.Made = false
	operation.Record, _ = json.Marshal(gift{volume.Object.Spec.ClaimRef.UID}) // a uid is a string
	return operation
}

// GivenTo returns the claim that an operation of Gift was made for, "" for other operations.
func GivenTo(operation operations.Operation) types.UID {
	var record gift
	if !operation.Adopt || json.Unmarshal(operation.Record, &record) != nil {
		return ""
	}
	return record.To
}

type gift struct {
	To types.UID `json:"givenTo"`
}

// Adoption returns the operation that records the owner of an Original volume in the ledger. The original
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
