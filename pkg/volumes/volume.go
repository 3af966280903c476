package volumes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// ReclaimPolicyOf returns the reclaim policy of the volume of an operation of Begin, or "" for another operation.
func ReclaimPolicyOf(operation operations.Operation) corev1.PersistentVolumeReclaimPolicy {
	r, _ := decodeRecord(operation)
	return r.Policy
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
	return Reserved{
		VolumeMeta: r.meta(operation.Volume, operation.Path, gid, provisioner),
		// The binder binds the volume to this claim only.
		ClaimMeta: metav1.ObjectMeta{Namespace: operation.Namespace, Name: operation.Claim, UID: types.UID(operation.ClaimUID)},
		Class:     r.Class, AccessModes: r.accessModes(), Policy: r.Policy, Size: r.Size, Zone: r.Zone,
		MountOptions: r.mountOptions(), Port: port, Path: operation.Path,
	}.volume(), nil
}

// checkVolume repeats the most important checks, because the operation was read from an annotation.
func checkVolume(operation operations.Operation, r record, port int) error {
	if err := cmp.Or(operations.CheckPath(operation.Path), ports.CheckTargetID(r.FileSystemID)); err != nil {
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

func (r record) meta(volume, path string, gid int, provisioner string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Name: volume, Labels: maps.Clone(r.Labels), Finalizers: finalizers(r.Policy)}
	metav1.SetMetaDataLabel(&meta, wellknown.LabelFileSystemID, r.FileSystemID)
	meta.Annotations = map[string]string{
		wellknown.AnnotationProvisionedBy: provisioner,
		wellknown.AnnotationFileSystemID:  r.FileSystemID,
		wellknown.AnnotationPath:          path,
	}
	if gid > 0 {
		meta.Annotations[wellknown.AnnotationGID] = fmt.Sprint(gid)
	}
	if r.Keep != "" {
		meta.Annotations[wellknown.AnnotationKeepDeleted] = r.Keep
	}
	return meta
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

// record has the fields of a volume that its operation has not. It is part of the operation, so that the volume
// fits the directory that was made even if claim or class have changed since. Hundreds of operations share an
// annotation, so defaults are left out.
type record struct {
	FileSystemID string                               `json:"fs"`
	Size         resource.Quantity                    `json:"size"`
	AccessModes  []string                             `json:"modes"` // RWO, ROX, RWX, RWOP
	Class        string                               `json:"class"`
	Policy       corev1.PersistentVolumeReclaimPolicy `json:"policy"`
	MountOptions string                               `json:"options,omitempty"` // with commas between; "" is the default
	Labels       map[string]string                    `json:"labels,omitempty"`
	Zone         string                               `json:"zone,omitempty"`
	Keep         string                               `json:"keep,omitempty"`
	Point        *pointRecord                         `json:"point,omitempty"`
}

func newRecord(claim Claim, class Class, choice Choice) record {
	r := record{
		FileSystemID: choice.FileSystemID,
		Size:         claim.Capacity,
		Class:        class.Name,
		Policy:       claim.ReclaimPolicy,
		MountOptions: strings.Join(class.MountOptions, ","),
		Labels:       claim.Labels,
		Zone:         choice.Zone,
		Keep:         class.KeepDeleted,
	}
	if p := class.AccessPoints; p != nil {
		r.Point = &pointRecord{Number: claim.GID, IAM: p.IAM, Untagged: !p.Tagged}
		r.Point.UID, r.Point.GID = p.user(claim.GID)
	}
	if r.MountOptions == wellknown.DefaultMountOptions {
		r.MountOptions = ""
	}
	for _, mode := range claim.AccessModes {
		r.AccessModes = append(r.AccessModes, shortAccessModes()[mode])
	}
	return r
}

func decodeRecord(operation operations.Operation) (record, error) {
	var r record
	if err := json.Unmarshal(operation.Record, &r); err != nil {
		return record{}, fmt.Errorf("reading the record of volume %s: %w", operation.Volume, err)
	}
	return r, nil
}

// mountOptions may have been written by an earlier version, in other spellings, or with one that is refused now.
func (r record) mountOptions() []string {
	if r.MountOptions == "" {
		return strings.Split(wellknown.DefaultMountOptions, ",")
	}
	options := kernelSpellings(strings.Split(r.MountOptions, ","))
	return slices.DeleteFunc(options, func(option string) bool { return harm(option) != "" })
}

func (r record) accessModes() []corev1.PersistentVolumeAccessMode {
	var modes []corev1.PersistentVolumeAccessMode
	for _, short := range r.AccessModes {
		for mode, s := range shortAccessModes() {
			if s == short {
				modes = append(modes, mode)
			}
		}
	}
	return modes
}

// shortAccessModes returns the access modes that a volume can have, as kubectl shows them.
func shortAccessModes() map[corev1.PersistentVolumeAccessMode]string {
	return map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
	}
}

// maxOperationBytes keeps one claim, such as one with hundreds of labels, from filling the annotation that many share.
const maxOperationBytes = 16 << 10

// Begin returns the operation that makes the directory of a claim, copies it, or restores it from the trash. Its record
// has what FromOperation needs. The error is a Refusal. The cluster is the uid of the namespace kube-system.
func Begin(claim Claim, class Class, choice Choice, cluster string) (operations.Operation, error) {
	operation := operations.Operation{
		Kind: operations.Setup,
		Owner: operations.Owner{
			Volume:    VolumeName(claim.UID),
			Cluster:   cluster,
			Namespace: claim.Namespace,
			Claim:     claim.Name,
			ClaimUID:  string(claim.UID),
			Class:     class.Name,
		},
		Path: claim.Path,
	}
	switch {
	case claim.Source != "":
		operation.Kind, operation.Source = operations.Clone, claim.Copies // mode, owner and group are those of the source
	case claim.Restore != "":
		operation.Kind, operation.RestoreFrom = operations.Restore, string(claim.Restore)
		operation.ShareAcrossNamespaces = class.Rules.ShareAcrossNamespaces
	default:
		operation.Directory, operation.Rules = class.Directory, class.Rules
		if p := class.AccessPoints; p != nil {
			operation.UID, operation.GID = p.user(claim.GID)
		}
	}
	operation.Record, _ = json.Marshal(newRecord(claim, class, choice)) // of texts and numbers
	if size := len(operation.Record) + len(operation.Path); size > maxOperationBytes {
		return operations.Operation{}, refuse(fmt.Sprintf("the claim's labels and its class's mount options take %d bytes, more than %d", size, maxOperationBytes))
	}
	return operation, nil
}

// Cleanup returns the operation that moves a volume's directory to the trash. The caller must have read
// the volume and its claim from the apiserver, and NeedsCleanup must be true for them.
func Cleanup(volume Volume, cluster string) operations.Operation {
	return operations.Operation{
		Kind:  operations.Cleanup,
		Owner: volume.owner(cluster),
		Path:  volume.Path,
		Keep:  volume.Keep,
	}
}

func (v Volume) owner(cluster string) operations.Owner {
	return operations.Owner{
		Volume:    v.Name,
		Cluster:   cluster,
		Namespace: v.Namespace,
		Claim:     v.Claim,
		ClaimUID:  string(v.ClaimUID),
	}
}

// Created returns the message of a claim's event about its new volume, with what the claim's author may not
// expect of it. The sharer is another claim with the same directory, and the note is the mount Job's, each "" for none.
func Created(volume *corev1.PersistentVolume, sharer, note string) string {
	about := fmt.Sprintf("created volume %s: directory %s of file system %s", volume.Name, volume.Annotations[wellknown.AnnotationPath], volume.Labels[wellknown.LabelFileSystemID])
	if sharer != "" {
		about += ", which claim " + sharer + " has, too"
	}
	parts := slices.DeleteFunc([]string{about, note, readOnlyNote(volume), labelsNote(volume)}, func(part string) bool { return part == "" })
	return operations.Shorten(strings.Join(parts, "; "), maxMessageBytes)
}

func readOnlyNote(volume *corev1.PersistentVolume) string {
	if IsReadOnly(volume.Spec.AccessModes) {
		return "it is mounted read-only, because ReadOnlyMany is the claim's only access mode"
	}
	return ""
}

// labelsNote returns a note for a claim whose labels may be meant for a volume that a person creates, or "".
func labelsNote(volume *corev1.PersistentVolume) string {
	copied := maps.Clone(volume.Labels)
	maps.DeleteFunc(copied, func(key, _ string) bool { return slices.Contains(settingLabels(), key) })
	if len(copied) == 0 {
		return ""
	}
	return fmt.Sprintf("the selector's labels %s are only copied to it: a volume that has them and is created later is not waited for",
		operations.Shorten(labels.Set(copied).String(), 3*maxQuotedBytes))
}
