package volumes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Kind says who made a volume.
type Kind int

// The kinds of volumes.
const (
	Foreign     Kind = iota // not made for a claim of our classes; also a SharedVolume's
	Provisioned             // made or adopted by us
	Original                // made by the original system; its owner is not in the ledger yet
	Root                    // a whole file system, for mount Jobs
)

// Volume is a parsed PersistentVolume.
type Volume struct {
	Object       *corev1.PersistentVolume
	Name         string
	Kind         Kind
	FileSystemID string
	Path         string
	Port         int // in its mount options; 0 for none
	// AccessPointID is that of the access point on its directory, which is deleted with the directory; "" for none.
	AccessPointID string
	Policy        corev1.PersistentVolumeReclaimPolicy
	Keep          string // how long the trash keeps its directory, as an operation has it

	// Namespace, Claim and ClaimUID are the owner's, "" for a volume without a claim.
	Namespace, Claim string
	ClaimUID         types.UID

	// Problem says why source and annotations of the volume disagree or are invalid, or "". Nothing
	// may be done to the directory of a volume with a problem.
	Problem string
}

// Read parses a volume.
func Read(object *corev1.PersistentVolume, provisioner string) Volume {
	volume := Volume{
		Object:       object,
		Name:         object.Name,
		Kind:         kindOf(object, provisioner),
		FileSystemID: object.Annotations[wellknown.AnnotationFileSystemID],
		Port:         ports.VolumeOf(object).Port,
		Policy:       object.Spec.PersistentVolumeReclaimPolicy,
		Keep:         keepOf(object),
	}
	if object.Spec.NFS != nil {
		volume.Path = object.Spec.NFS.Path
	}
	if ref := object.Spec.ClaimRef; ref != nil {
		volume.Namespace, volume.Claim, volume.ClaimUID = ref.Namespace, ref.Name, ref.UID
	}
	switch volume.Kind {
	case Provisioned:
		// The ledger has the claim that the volume was made for. An administrator may have removed the
		// claimRef of a retained volume since, or set another claim.
		volume.ClaimUID = ""
		if claims := ClaimsOf(object); len(claims) > 0 {
			volume.ClaimUID = claims[0]
		}
		if onPoint(object) {
			volume.Path, volume.AccessPointID = object.Annotations[wellknown.AnnotationPath], object.Annotations[wellknown.AnnotationAccessPointID]
		}
		volume.Problem = problemOf(object, volume)
	case Original:
		volume.Problem = problemOf(object, volume)
	case Root:
		volume.FileSystemID = rootFileSystem(object)
	case Foreign:
	}
	return volume
}

// onPoint reports whether a volume of ours is the root of an access point. Its directory is in an annotation then:
// the ledger, which must have the volume as an owner there, keeps an edit of that from removing anything else.
func onPoint(object *corev1.PersistentVolume) bool {
	return object.Annotations[wellknown.AnnotationAccessPointID] != "" && object.Spec.NFS != nil && object.Spec.NFS.Path == "/"
}

// kindOf checks the class first: no annotation makes a root volume a tenant's volume.
func kindOf(object *corev1.PersistentVolume, provisioner string) Kind {
	_, shared := object.Annotations[wellknown.AnnotationSharedVolume]
	switch {
	case object.Spec.StorageClassName == wellknown.RootStorageClass:
		return Root
	case shared || object.Annotations[wellknown.AnnotationProvisionedBy] != provisioner:
		return Foreign
	}
	if _, ok := object.Annotations[wellknown.AnnotationPath]; !ok {
		return Original
	}
	return Provisioned
}

// ClaimsOf returns the uids of the claims that a volume names: of the claim that it was made or adopted
// for, then of that in its claimRef, if it is another one.
func ClaimsOf(object *corev1.PersistentVolume) []types.UID {
	var all []types.UID
	if uid, ok := ClaimOfName(object.Name); ok {
		all = append(all, uid)
	} else if uid := object.Annotations[wellknown.AnnotationClaimUID]; uids.MatchString(uid) {
		all = append(all, types.UID(uid))
	}
	if ref := object.Spec.ClaimRef; ref != nil && ref.UID != "" && !slices.Contains(all, ref.UID) {
		all = append(all, ref.UID)
	}
	return all
}

// ClaimOfName returns the claim whose VolumeName this is; ok is false for other names.
func ClaimOfName(name string) (claim types.UID, ok bool) {
	uid, ok := strings.CutPrefix(name, wellknown.VolumePrefix)
	if !ok || !uids.MatchString(uid) {
		return "", false
	}
	return types.UID(uid), true
}

// uids matches the uids of the apiserver. Adopted volumes have any name.
var uids = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// keepOf keeps a directory forever if the annotation is invalid: a typing error must not delete data.
func keepOf(object *corev1.PersistentVolume) string {
	keep, ok := object.Annotations[wellknown.AnnotationKeepDeleted]
	if ok && !isKeep(keep) {
		return wellknown.KeepDeletedForever
	}
	return keep
}

// problemOf compares source and annotations of a volume. Only the source is immutable, so that pods
// can have used no other directory; annotations can name any.
func problemOf(object *corev1.PersistentVolume, volume Volume) string {
	source := object.Spec.NFS
	if source == nil {
		return "it is not an NFS volume"
	}
	if source.Server != wellknown.LoopbackAddress {
		return fmt.Sprintf("its server is %s, not %s", quoted(source.Server), wellknown.LoopbackAddress)
	}
	if err := operations.CheckPath(volume.Path); err != nil {
		return operations.Shorten(err.Error(), maxMessageBytes)
	}
	if path, ok := object.Annotations[wellknown.AnnotationPath]; ok && path != volume.Path {
		return fmt.Sprintf("its annotation %s is %s, but its path is %s", wellknown.AnnotationPath, quoted(path), quoted(volume.Path))
	}
	if err := ports.CheckTargetID(volume.FileSystemID); err != nil {
		return fmt.Sprintf("its annotation %s is %s, which is not the id of a file system", wellknown.AnnotationFileSystemID, quoted(volume.FileSystemID))
	}
	return ""
}

// rootFileSystem prefers the name, because labels and annotations of a root volume can be edited.
func rootFileSystem(object *corev1.PersistentVolume) string {
	if id, ok := strings.CutPrefix(object.Name, wellknown.RootVolumePrefix); ok && ports.CheckTargetID(id) == nil {
		return id
	}
	if id, ok := object.Annotations[wellknown.AnnotationFileSystemID]; ok {
		return id
	}
	return object.Labels[wellknown.LabelFileSystemID]
}

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
	operation.Made, operation.GivenTo = false, string(volume.Object.Spec.ClaimRef.UID)
	operation.Reads = IsReadOnly(volume.Object.Spec.AccessModes)
	return operation
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

// NeedsCleanup reports whether a volume's directory is to be removed. The claim is the one with the namespace and
// name of the volume's claimRef, nil if there is none. Volumes that are not in the ledger are never cleaned up.
//
//	phase      volume is deleted   its claim              cleanup
//	Released   either              gone, or another uid   yes
//	Released   either              has another volume     yes, if made for it: it was never bound
//	Available  yes                 does not name it       yes: it was never bound
//	other      either              any                    no
func (v Volume) NeedsCleanup(claim *corev1.PersistentVolumeClaim) bool {
	if v.Kind != Provisioned || v.Problem != "" || v.Policy != corev1.PersistentVolumeReclaimDelete {
		return false
	}
	ref := v.Object.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return false
	}
	own := claim != nil && claim.UID == ref.UID
	switch v.Object.Status.Phase {
	case corev1.VolumeReleased:
		return !own || isSpare(v.Object, claim)
	case corev1.VolumePending, corev1.VolumeAvailable, "":
		return v.Object.DeletionTimestamp != nil && (!own || claim.Spec.VolumeName != v.Name)
	default:
		return false
	}
}

// isSpare reports whether a volume was made for its claim, and the claim was bound to another volume. A claim's
// volumeName never changes, so no pod can have used this volume through the claim. Volumes with other names may
// have been bound to another claim before.
func isSpare(object *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return object.Name == VolumeName(claim.UID) && claim.Spec.VolumeName != "" && claim.Spec.VolumeName != object.Name
}

// EditFinalizer reports whether the finalizer must follow an edit of the reclaim policy: with Delete, it keeps the
// volume until the cleanup of its directory; otherwise there is no cleanup that removes it.
func (v Volume) EditFinalizer() (add, remove bool) {
	if v.Kind != Provisioned {
		return false, false
	}
	has := slices.Contains(v.Object.Finalizers, wellknown.FinalizerVolume)
	ref, deleted := v.Object.Spec.ClaimRef, v.Object.DeletionTimestamp != nil
	// An administrator removed the claimRef, so that NeedsCleanup never becomes true.
	unclaimed := deleted && (ref == nil || ref.UID == "")
	if v.Policy != corev1.PersistentVolumeReclaimDelete || unclaimed {
		return false, has
	}
	// The apiserver refuses new finalizers on an object that is being deleted.
	return !has && !deleted && v.Problem == "", false
}

func finalizers(policy corev1.PersistentVolumeReclaimPolicy) []string {
	if policy != corev1.PersistentVolumeReclaimDelete {
		return nil
	}
	return []string{wellknown.FinalizerVolume}
}
