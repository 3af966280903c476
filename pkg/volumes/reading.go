package volumes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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
	Policy       corev1.PersistentVolumeReclaimPolicy
	Keep         string // how long the trash keeps its directory, as an operation has it

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
		volume.Problem = problemOf(object, volume)
	case Original:
		volume.Problem = problemOf(object, volume)
	case Root:
		volume.FileSystemID = rootFileSystem(object)
	case Foreign:
	}
	return volume
}

// kindOf checks the class first: no annotation makes a root volume a tenant's volume.
func kindOf(object *corev1.PersistentVolume, provisioner string) Kind {
	_, shared := object.Annotations[wellknown.AnnotationSharedVolume]
	switch {
	case object.Spec.StorageClassName == wellknown.RootStorageClass:
		return Root
	case shared:
		return Foreign
	case object.Annotations[wellknown.AnnotationProvisionedBy] != provisioner:
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
	if err := operations.CheckPath(source.Path); err != nil {
		return operations.Shorten(err.Error(), maxMessageBytes)
	}
	if path, ok := object.Annotations[wellknown.AnnotationPath]; ok && path != source.Path {
		return fmt.Sprintf("its annotation %s is %s, but its path is %s", wellknown.AnnotationPath, quoted(path), quoted(source.Path))
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
