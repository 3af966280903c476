package volumes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Kind says whose a volume is.
type Kind int

// The kinds of volumes.
const (
	Foreign     Kind = iota // nothing of ours, or a SharedVolume's: no claim of a class has it
	Provisioned             // made or adopted by us
	Original                // made by the original system, its owner not in the ledger yet
	Root                    // a whole file system, for mount Jobs
)

// Volume is a PersistentVolume, read back.
type Volume struct {
	Object       *corev1.PersistentVolume
	Name         string
	Kind         Kind
	FileSystemID string
	Path         string
	Port         int // that it names; 0 for none
	Policy       corev1.PersistentVolumeReclaimPolicy
	Keep         string // how long the trash keeps its directory, as an operation has it

	// Namespace, Claim and ClaimUID are the owner's, "" for a volume without a claim.
	Namespace, Claim string
	ClaimUID         types.UID

	// Problem says why the volume is not what it says it is. Nothing may be done to the
	// directory of such a volume, whoever made the object.
	Problem string
}

// Read says what a volume is.
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
		volume.ClaimUID = firstClaim(object)
		volume.Problem = problemOf(object, volume)
	case Original:
		volume.Problem = problemOf(object, volume)
	case Root:
		volume.FileSystemID = rootFileSystem(object)
	case Foreign:
	}
	return volume
}

// kindOf asks for the class first: no annotation makes a tenant's volume of a root volume.
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

// firstClaim is the claim that the volume was made for, and that the ledger knows. An
// administrator may have taken a retained volume from it since, or given it to another one.
func firstClaim(object *corev1.PersistentVolume) types.UID {
	if all := ClaimsOf(object); len(all) > 0 {
		return all[0]
	}
	return ""
}

// ClaimsOf are the claims that a volume names: the one that it was made or adopted for first,
// then the one that it is for now, if that is another.
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

// ClaimOfName is the claim whose VolumeName this is; ok is false for other names.
func ClaimOfName(name string) (claim types.UID, ok bool) {
	uid, ok := strings.CutPrefix(name, wellknown.VolumePrefix)
	if !ok || !uids.MatchString(uid) {
		return "", false
	}
	return types.UID(uid), true
}

// uids are as the cluster gives them. Adopted volumes have any name.
var uids = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// keepOf keeps for ever what it cannot read: a typing error must not cost data.
func keepOf(object *corev1.PersistentVolume) string {
	keep, ok := object.Annotations[wellknown.AnnotationKeepDeleted]
	if ok && !isKeep(keep) {
		return wellknown.KeepDeletedForever
	}
	return keep
}

// problemOf compares what a volume says of itself. Only the source is immutable, so pods were
// there and nowhere else; whoever wrote the annotations may have meant another directory.
func problemOf(object *corev1.PersistentVolume, volume Volume) string {
	source := object.Spec.NFS
	if source == nil {
		return "it is not an NFS volume"
	}
	if source.Server != wellknown.LoopbackAddress {
		return fmt.Sprintf("its server is %s, not %s", quoted(source.Server), wellknown.LoopbackAddress)
	}
	if err := operations.CheckPath(source.Path); err != nil {
		return cut(err.Error(), maxMessageBytes)
	}
	if path, ok := object.Annotations[wellknown.AnnotationPath]; ok && path != source.Path {
		return fmt.Sprintf("its annotation %s is %s, but its path is %s", wellknown.AnnotationPath, quoted(path), quoted(source.Path))
	}
	if err := ports.CheckTargetID(volume.FileSystemID); err != nil {
		return fmt.Sprintf("its annotation %s is %s, which is not the id of a file system", wellknown.AnnotationFileSystemID, quoted(volume.FileSystemID))
	}
	return ""
}

// rootFileSystem reads the name first: of a root volume, only that cannot be edited.
func rootFileSystem(object *corev1.PersistentVolume) string {
	if id, ok := strings.CutPrefix(object.Name, wellknown.RootVolumePrefix); ok && ports.CheckTargetID(id) == nil {
		return id
	}
	if id, ok := object.Annotations[wellknown.AnnotationFileSystemID]; ok {
		return id
	}
	return object.Labels[wellknown.LabelFileSystemID]
}
