package volumes

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// ReclaimPolicyOf returns the reclaim policy of the volume of an operation of Begin, or "" for another operation.
func ReclaimPolicyOf(operation operations.Operation) corev1.PersistentVolumeReclaimPolicy {
	r, err := decodeRecord(operation)
	if err != nil {
		return ""
	}
	return corev1.PersistentVolumeReclaimPolicy(r.Policy)
}

// FromOperation builds the volume of a finished operation of Begin from the operation, the port that
// its file system has now, and the gid that the Job reported, 0 for none.
func FromOperation(operation operations.Operation, port, gid int, provisioner string) (*corev1.PersistentVolume, error) {
	r, err := decodeRecord(operation)
	if err != nil {
		return nil, err
	}
	if err := checkVolume(operation, r, port); err != nil {
		return nil, fmt.Errorf("building volume %s: %w", operation.Volume, err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        operation.Volume,
			Annotations: r.annotations(operation.Path, gid, provisioner),
			Labels:      maps.Clone(r.Labels),
			Finalizers:  finalizers(corev1.PersistentVolumeReclaimPolicy(r.Policy)),
		},
		Spec: r.spec(operation, port),
	}
	metav1.SetMetaDataLabel(&volume.ObjectMeta, wellknown.LabelFileSystemID, r.FileSystemID)
	return volume, nil
}

// checkVolume repeats the most important checks, because the operation was read from an annotation.
func checkVolume(operation operations.Operation, r record, port int) error {
	if err := operations.CheckPath(operation.Path); err != nil {
		return err
	}
	if err := ports.CheckTargetID(r.FileSystemID); err != nil {
		return err
	}
	switch {
	case operation.ClaimUID == "" || operation.Volume != VolumeName(types.UID(operation.ClaimUID)):
		return fmt.Errorf("it is not the name for claim uid %q", operation.ClaimUID)
	case !isReclaimPolicy(r.Policy):
		return fmt.Errorf("its record has the reclaim policy %q", r.Policy)
	case len(r.accessModes()) == 0 || len(r.accessModes()) != len(r.AccessModes):
		return fmt.Errorf("its record has the access modes %q", r.AccessModes)
	case port < 1 || port > wellknown.MaxPort:
		return fmt.Errorf("file system %s has no local port", r.FileSystemID)
	}
	return nil
}

func (r record) annotations(path string, gid int, provisioner string) map[string]string {
	annotations := map[string]string{
		wellknown.AnnotationProvisionedBy: provisioner,
		wellknown.AnnotationFileSystemID:  r.FileSystemID,
		wellknown.AnnotationPath:          path,
	}
	if gid > 0 {
		annotations[wellknown.AnnotationGID] = fmt.Sprint(gid)
	}
	if r.Keep != "" {
		annotations[wellknown.AnnotationKeepDeleted] = r.Keep
	}
	return annotations
}

func (r record) spec(operation operations.Operation, port int) corev1.PersistentVolumeSpec {
	ref := claimRef(operation.Namespace, operation.Claim)
	ref.UID = types.UID(operation.ClaimUID) // the binder binds the volume to this claim only
	source, options := mount(operation.Path, r.accessModes(), r.mountOptions())
	return corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: r.Size},
		AccessModes:                   r.accessModes(),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimPolicy(r.Policy),
		StorageClassName:              r.Class,
		VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
		MountOptions:                  withPort(options, port),
		PersistentVolumeSource:        source,
		NodeAffinity:                  zoneAffinity(r.Zone),
		ClaimRef:                      ref,
	}
}

func zoneAffinity(zone string) *corev1.VolumeNodeAffinity {
	if zone == "" {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{
			Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone},
		}},
	}}}}
}
