package volumes

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// RootName names the root volume and the root claim of a file system.
func RootName(fileSystemID string) string { return wellknown.RootVolumePrefix + fileSystemID }

// RootVolume returns the volume of a whole file system.
func RootVolume(fileSystemID string, port int, namespace string) *corev1.PersistentVolume {
	volume, _ := rootObjects(fileSystemID, port, namespace)
	return volume
}

// RootClaim returns the claim that mount Jobs mount.
func RootClaim(fileSystemID, namespace string) *corev1.PersistentVolumeClaim {
	_, claim := rootObjects(fileSystemID, 0, namespace)
	return claim
}

func rootObjects(fileSystemID string, port int, namespace string) (*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {
	name := RootName(fileSystemID)
	labels := func() map[string]string {
		return map[string]string{wellknown.LabelFileSystemID: fileSystemID, wellknown.LabelRootKey: fileSystemID}
	}
	options := strings.Split(wellknown.DefaultMountOptions, ",")
	for option := range strings.SplitSeq(wellknown.RootMountOptions, ",") {
		options = setMountOption(options, option)
	}
	return Reserved{
		VolumeMeta: metav1.ObjectMeta{Name: name, Labels: labels(), Annotations: map[string]string{wellknown.AnnotationFileSystemID: fileSystemID}},
		ClaimMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels()},
		Class:      wellknown.RootStorageClass, AccessMode: corev1.ReadWriteMany, MountOptions: options, Port: port, Path: "/",
	}.Objects()
}

// RootPair is a file system's root volume and root claim.
type RootPair struct {
	FileSystemID string
	Port         int                           // of its tunnel; 0 while it has none
	Namespace    string                        // the manager's
	Volume       *corev1.PersistentVolume      // nil if there is none
	Claim        *corev1.PersistentVolumeClaim // nil if there is none
}

// Changes returns the changes that correct the pair; none while the file system has no port.
func (p RootPair) Changes() []Change {
	if p.Port == 0 {
		return nil
	}
	volume, claim := rootObjects(p.FileSystemID, p.Port, p.Namespace)
	if p.Volume != nil {
		if key, ok := p.Volume.Labels[wellknown.LabelRootKey]; ok {
			volume.Labels[wellknown.LabelRootKey] = key // the original system's stays
		}
	}
	// Each object keeps the time of the next sweep, and how far a survey is, while the other one is missing: the
	// Jobs that it is known from may no longer exist.
	switch {
	case p.Volume == nil && p.Claim != nil:
		carryRecords(p.Claim.Annotations, &volume.ObjectMeta)
	case p.Claim == nil && p.Volume != nil:
		carryRecords(p.Volume.Annotations, &claim.ObjectMeta)
	}
	return Pair{Volume: p.Volume, Claim: p.Claim, WantVolume: volume, WantClaim: claim}.Changes()
}

func carryRecords(from map[string]string, to *metav1.ObjectMeta) {
	for _, name := range []string{wellknown.AnnotationNextSweep, wellknown.AnnotationSurvey} {
		if record, ok := from[name]; ok {
			metav1.SetMetaDataAnnotation(to, name, record)
		}
	}
}

// OtherInstallation returns the namespace for whose root claim a root volume is reserved, if that is not
// the manager's; "" for every other volume. A root volume that is reserved for a claim of another name
// was edited.
func OtherInstallation(volume *corev1.PersistentVolume, namespace string) string {
	if volume == nil || volume.Spec.ClaimRef == nil {
		return ""
	}
	isRoot := volume.Spec.StorageClassName == wellknown.RootStorageClass || volume.Labels[wellknown.LabelRootKey] != ""
	if ref := volume.Spec.ClaimRef; isRoot && ref.Name == volume.Name && ref.Namespace != namespace {
		return ref.Namespace
	}
	return ""
}

// BelongsTo returns a message that a file system is another installation's, with the remedy.
func BelongsTo(namespace string) string {
	return fmt.Sprintf("belongs to the installation in namespace %s: uninstall one of the two, or separate their file systems by --file-system-ids or --file-system-tags", namespace)
}

// OtherInstallation returns the namespace of another installation that has the root volume, or "".
func (p RootPair) OtherInstallation() string { return OtherInstallation(p.Volume, p.Namespace) }

// Ready returns why no Job may use the claim now, or "".
func (p RootPair) Ready() (why string) {
	other := p.OtherInstallation()
	switch changes := p.Changes(); {
	case other != "":
		return fmt.Sprintf("file system %s %s", p.FileSystemID, BelongsTo(other))
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
