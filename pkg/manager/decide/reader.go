package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// beginReading returns the operation that makes a claim's volume a reader of the directory of a claim of another
// namespace, which the annotation names. Three must agree: the claim's class, the owner's class, and the owner. The
// error is a refusal; whatever is missing on the owner's side has one text, which tells a stranger nothing.
func (s State) beginReading(claim volumes.Claim, class volumes.Class) (operations.Operation, volumes.Choice, error) {
	namespace, name, err := s.checkReader(claim, class)
	if err != nil {
		return operations.Operation{}, volumes.Choice{}, err
	}
	owner := s.Named(namespace, name)
	ownerClass, ok := s.consents(owner, claim.Namespace)
	if !ok {
		return operations.Operation{}, volumes.Choice{}, refusal("claim %s/%s cannot be read from here: it must be bound to a writable directory of this provisioner, "+
			`name namespace %s in its annotation %s, and have a class with share_read_only: "true"`, namespace, name, claim.Namespace, wellknown.AnnotationReaders)
	}
	volume := volumes.Read(owner.Volume, s.Provisioner)
	wanted := cmp.Or(claim.FileSystemID, class.DefaultFileSystemID, volume.FileSystemID)
	if wanted != volume.FileSystemID || len(class.FileSystemIDs) > 0 && !slices.Contains(class.FileSystemIDs, wanted) {
		return operations.Operation{}, volumes.Choice{}, refusal("claim %s/%s is on a file system that this claim or its class does not allow", namespace, name)
	}
	claim.FileSystemID, claim.Path, claim.ReclaimPolicy = volume.FileSystemID, volume.Path, corev1.PersistentVolumeReclaimDelete
	class.Directory, class.Rules, class.KeepDeleted = operations.Directory{}, operations.Rules{}, ownerClass.KeepDeleted
	choice, err := volumes.Choose(claim, class, s.NodeZone, s.candidates(claim.Path), s.Targets.Excluded)
	if err != nil || choice.FileSystemID == "" {
		return operations.Operation{}, choice, err
	}
	operation, err := volumes.Begin(claim, class, choice, s.Cluster)
	operation.Reads = true
	operation.Source = operations.Source{SourcePath: volume.Path, SourceVolume: volume.Name, SourceClaim: name, SourceClaimUID: string(volume.ClaimUID)}
	return operation, choice, err
}

// checkReader returns the claim that a reader names, or why it can be no reader.
func (s State) checkReader(claim volumes.Claim, class volumes.Class) (namespace, name string, err error) {
	reads := s.Claim.Annotations[wellknown.AnnotationReads]
	namespace, name, _ = strings.Cut(reads, "/")
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0:
		return "", "", refusal("annotation %s is %.100q: write the namespace and the name of a claim with a slash between", wellknown.AnnotationReads, reads)
	case namespace == claim.Namespace:
		return "", "", refusal("claim %s/%s is of this claim's own namespace: share its directory by the label %s", namespace, name, wellknown.LabelVolumeName)
	case !volumes.IsReadOnly(claim.AccessModes):
		return "", "", refusal("a claim that reads claim %s/%s can have the access mode ReadOnlyMany only", namespace, name)
	case !class.ShareReadOnly:
		return "", "", refusal(`claim %s/%s cannot be read from here: this claim's class must have share_read_only: "true"`, namespace, name)
	case claim.Source != "" || claim.Restore != "":
		return "", "", refusal("the annotation %s cannot be kept with a dataSource or the annotation %s: leave one of them out", wellknown.AnnotationReads, wellknown.AnnotationRestore)
	case class.AccessPoints != nil:
		return "", "", refusal("a class with access points has no readers: use another class")
	}
	return namespace, name, nil
}

// consents reports whether a claim, its volume and its class let a namespace read, and returns the class. What tenants
// can edit is not enough: a reader's own volume is read-only, so that nobody passes on what others share.
func (s State) consents(owner volumes.Source, namespace string) (volumes.Class, bool) {
	if owner.Claim == nil || owner.Volume == nil || owner.Claim.DeletionTimestamp != nil || !namesReader(owner.Claim, namespace) {
		return volumes.Class{}, false
	}
	object := s.ClassNamed(owner.Volume.Spec.StorageClassName)
	if object == nil || object.Provisioner != s.Provisioner {
		return volumes.Class{}, false
	}
	class, err := volumes.ParseClass(object)
	volume, ref := volumes.Read(owner.Volume, s.Provisioner), owner.Volume.Spec.ClaimRef
	isOwn := ref != nil && ref.UID == owner.Claim.UID && volume.Kind == volumes.Provisioned && volume.Problem == "" &&
		owner.Volume.Annotations[wellknown.AnnotationAccessPointID] == ""
	return class, err == nil && class.ShareReadOnly && isOwn && owner.Volume.DeletionTimestamp == nil && !volumes.IsReadOnly(owner.Volume.Spec.AccessModes)
}

func namesReader(claim *corev1.PersistentVolumeClaim, namespace string) bool {
	readers := strings.Split(claim.Annotations[wellknown.AnnotationReaders], ",")
	return slices.ContainsFunc(readers, func(reader string) bool { return strings.TrimSpace(reader) == namespace })
}

func refusal(format string, args ...any) volumes.Refusal {
	return volumes.Refusal(fmt.Sprintf(format, args...))
}
