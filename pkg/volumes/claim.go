package volumes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Claim is a claim of this provisioner, checked against its class.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	Node            string // that the scheduler selected; "" when the class does not wait for one
	FileSystemID    string // that the claim names, or ""
	Path            string // of its directory, from the file system's root
	Labels          map[string]string
	ReclaimPolicy   corev1.PersistentVolumeReclaimPolicy
	AccessModes     []corev1.PersistentVolumeAccessMode
	Capacity        resource.Quantity
	Restore         types.UID // of the deleted claim whose directory it wants back, or ""
	Source          string    // the name of the claim that it is to be a copy of, or ""
	// SourceFileSystemID and Copies are where that is; From sets them.
	SourceFileSystemID string
	Copies             operations.Source
}

// ParseClaim parses a claim that IsRequested. The error is a Refusal that names everything that is
// wrong with it, because most of a claim cannot be edited.
func ParseClaim(object *corev1.PersistentVolumeClaim, class Class) (Claim, error) {
	claim := Claim{
		Namespace:     object.Namespace,
		Name:          object.Name,
		UID:           object.UID,
		Labels:        matchLabels(object),
		ReclaimPolicy: class.ReclaimPolicy,
		AccessModes:   object.Spec.AccessModes,
		Capacity:      object.Spec.Resources.Requests[corev1.ResourceStorage],
	}
	if class.WaitsForNode {
		claim.Node = SelectedNode(object)
	}
	findings := slices.Concat(
		checkSpec(object.Spec),
		class.checkAlone(object),
		claim.setLabels(object, class),
		claim.setSource(object),
		claim.setRestore(object),
	)
	if len(findings) > 0 {
		return Claim{}, refuse(findings...)
	}
	var err error
	if claim.Path, err = class.path(object); err != nil {
		return Claim{}, refuse(err.Error())
	}
	return claim, nil
}

// checkSpec refuses what a directory on NFS cannot be.
func checkSpec(spec corev1.PersistentVolumeClaimSpec) []string {
	var findings []string
	if len(spec.AccessModes) == 0 {
		findings = append(findings, "spec.accessModes is missing: write ReadWriteOnce, ReadOnlyMany or ReadWriteMany")
	}
	for _, mode := range spec.AccessModes {
		if shortAccessModes()[mode] == "" {
			findings = append(findings, fmt.Sprintf("access mode %s is not known here: write ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod", quoted(string(mode))))
		}
	}
	if spec.VolumeMode != nil && *spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		findings = append(findings, fmt.Sprintf("volumeMode %s is not possible on EFS: write Filesystem or leave it out", quoted(string(*spec.VolumeMode))))
	}
	if name := spec.VolumeAttributesClassName; name != nil && *name != "" {
		findings = append(findings, fmt.Sprintf("volumeAttributesClassName %s is not supported: leave it out", quoted(*name)))
	}
	if capacity := spec.Resources.Requests[corev1.ResourceStorage]; capacity.Sign() <= 0 {
		findings = append(findings, "spec.resources.requests.storage is missing: write a size; it is a label only, because EFS grows as needed")
	}
	return findings
}

// checkAlone refuses a claim for one pod whose directory may be another claim's, too. The scheduler keeps other
// pods from the claim, not from the directory.
func (c Class) checkAlone(object *corev1.PersistentVolumeClaim) []string {
	if !slices.Contains(object.Spec.AccessModes, corev1.ReadWriteOncePod) || c.Pattern.isUnique(object) {
		return nil
	}
	const what = "access mode ReadWriteOncePod needs a directory that no other claim has: "
	if _, named := matchLabels(object)[wellknown.LabelVolumeName]; named {
		return []string{what + "leave out the label " + wellknown.LabelVolumeName + ", or write ReadWriteOnce"}
	}
	return []string{what + "write ReadWriteOnce, or use a class whose path_pattern has ${.PVC.uid}"}
}

// setRestore reads the annotation as one component of a path, since it will be a part of one.
func (c *Claim) setRestore(object *corev1.PersistentVolumeClaim) []string {
	uid, ok := object.Annotations[wellknown.AnnotationRestore]
	if !ok {
		return nil
	}
	if uid == "" || strings.Trim(uid, "0123456789abcdefghijklmnopqrstuvwxyz-") != "" || len(uid) > maxUIDBytes {
		return []string{fmt.Sprintf("annotation %s is %s: write the uid of the deleted claim, such as 01234567-89ab-cdef-0123-456789abcdef",
			wellknown.AnnotationRestore, quoted(uid))}
	}
	c.Restore = types.UID(uid)
	return nil
}

const maxUIDBytes = 63
