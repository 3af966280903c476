package volumes

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/ports"
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
	GID             int       // that was allocated for its access point; 0 for none
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
	if findings := class.checkPoint(claim); len(findings) > 0 {
		return Claim{}, refuse(findings...)
	}
	return claim, nil
}

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

// volumeNames matches the volume names of the original system. They cannot contain a path.
var volumeNames = regexp.MustCompile(`^[a-z0-9_-]+$`)

// settingLabels returns the labels that say something to us; all others are only copied to volumes.
func settingLabels() []string {
	return []string{wellknown.LabelVolumeName, wellknown.LabelFileSystemID, wellknown.LabelReclaimPolicy}
}

func matchLabels(claim *corev1.PersistentVolumeClaim) map[string]string {
	if claim.Spec.Selector == nil {
		return nil
	}
	return claim.Spec.Selector.MatchLabels
}

// setLabels reads the claim's selector, whose labels are the claim's settings.
func (c *Claim) setLabels(object *corev1.PersistentVolumeClaim, class Class) []string {
	var findings []string
	if selector := object.Spec.Selector; selector != nil && len(selector.MatchExpressions) > 0 {
		findings = append(findings, "spec.selector.matchExpressions cannot be kept by a volume that is made for the claim: write matchLabels")
	}
	if _, ok := c.Labels[wellknown.LabelVolumeName]; !ok && class.RequireVolumeName {
		findings = append(findings, fmt.Sprintf("storage class %s requires the label %s: add it to spec.selector.matchLabels",
			quoted(class.Name), wellknown.LabelVolumeName))
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if why := c.setLabel(key, c.Labels[key], class); why != "" {
			findings = append(findings, fmt.Sprintf("label %s in spec.selector.matchLabels is %s: %s", shownKey(key), quoted(c.Labels[key]), why))
		}
	}
	return findings
}

func (c *Claim) setLabel(key, value string, class Class) string {
	switch key {
	case wellknown.LabelVolumeName:
		if !volumeNames.MatchString(value) {
			return "write a-z, 0-9, _ and - only"
		}
	case wellknown.LabelFileSystemID:
		c.FileSystemID = value
		return refusedFileSystem(value, class)
	case wellknown.LabelReclaimPolicy:
		c.ReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(value)
		if !isReclaimPolicy(c.ReclaimPolicy) {
			return "write Delete or Retain"
		}
	default:
		if own, ok := similar(key, settingLabels()); ok {
			return "write " + own
		}
	}
	return refusedLabel(key, value)
}

func refusedFileSystem(id string, class Class) string {
	if err := ports.CheckTargetID(id); err != nil {
		return "write a file system's id such as fs-0123456789abcdef0"
	}
	if id == wellknown.DefaultFileSystemID {
		return "leave it out to have one chosen"
	}
	if len(class.FileSystemIDs) > 0 && !slices.Contains(class.FileSystemIDs, id) {
		return fmt.Sprintf("storage class %s allows %s", quoted(class.Name), operations.Shorten(strings.Join(class.FileSystemIDs, ", "), 3*maxQuotedBytes))
	}
	return ""
}

// refusedLabel returns why the volume cannot have a label, or "". Other programs trust labels below these domains
// to be set by the cluster or by us, not by a tenant.
func refusedLabel(key, value string) string {
	if key == wellknown.LabelRootKey {
		return "leave it out: it is for volumes of whole file systems"
	}
	for _, domain := range []string{wellknown.KubernetesDomain, wellknown.KubernetesShortDomain, wellknown.Domain} {
		if isBelowDomain(key, domain) {
			return "leave it out: labels of " + domain + " are not copied to volumes"
		}
	}
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return "no volume can have this label"
	}
	return ""
}

func isBelowDomain(key, domain string) bool {
	prefix, _, ok := strings.Cut(key, "/")
	return ok && (prefix == domain || strings.HasSuffix(prefix, "."+domain))
}

func shownKey(key string) string {
	if len(validation.IsQualifiedName(key)) > 0 {
		return quoted(key)
	}
	return key
}

// Source is a claim that another one copies, and its volume.
type Source struct {
	Claim  *corev1.PersistentVolumeClaim // nil if there is none
	Volume *corev1.PersistentVolume      // that the claim names; nil if there is none
}

// SourceName returns the name of the claim, in its own namespace, that a claim is to be a copy of, or "".
func SourceName(claim *corev1.PersistentVolumeClaim) string {
	if s := dataSourceOf(claim.Spec); s.isClaim(claim.Namespace) {
		return s.name
	}
	return ""
}

// reference is the data source of a claim, in whichever of the two fields; the zero reference is none.
type reference struct{ group, kind, namespace, name string }

func dataSourceOf(spec corev1.PersistentVolumeClaimSpec) (r reference) {
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	switch {
	case spec.DataSourceRef != nil:
		return reference{text(spec.DataSourceRef.APIGroup), spec.DataSourceRef.Kind, text(spec.DataSourceRef.Namespace), spec.DataSourceRef.Name}
	case spec.DataSource != nil:
		return reference{text(spec.DataSource.APIGroup), spec.DataSource.Kind, "", spec.DataSource.Name}
	}
	return reference{}
}

func (r reference) isClaim(namespace string) bool {
	return r.group == "" && r.kind == "PersistentVolumeClaim" && (r.namespace == "" || r.namespace == namespace)
}

// setSource reads what the claim is to be a copy of: an empty volume instead would look like lost data.
func (c *Claim) setSource(object *corev1.PersistentVolumeClaim) []string {
	r := dataSourceOf(object.Spec)
	switch {
	case r == reference{}:
		return nil
	case !r.isClaim(r.namespace):
		return []string{fmt.Sprintf("%s %s cannot be copied into a volume: leave out dataSource and dataSourceRef, and copy the data with a pod", plain(r.kind), quoted(r.name))}
	case !r.isClaim(object.Namespace):
		return []string{fmt.Sprintf("claim %s of namespace %s cannot be copied into this one: a claim can be a copy of one of its own namespace only", quoted(r.name), quoted(r.namespace))}
	case r.name == object.Name:
		return []string{"the claim cannot be a copy of itself: write the name of another one in dataSource"}
	}
	c.Source = r.name
	if _, restores := object.Annotations[wellknown.AnnotationRestore]; restores {
		return []string{fmt.Sprintf("the annotation %s and dataSource cannot be kept both: leave one of them out", wellknown.AnnotationRestore)}
	}
	return nil
}

// From makes the claim one of a copy of its source. wait is what the source lacks that may come by itself, or
// "". The error is a Refusal.
func (c *Claim) From(source Source, provisioner string) (wait string, err error) {
	name := quoted(c.Source)
	switch {
	case source.Claim == nil:
		return fmt.Sprintf("claim %s, which is to be copied, does not exist", name), nil
	case source.Claim.DeletionTimestamp != nil:
		return "", refuse(fmt.Sprintf("claim %s, which is to be copied, is being deleted", name))
	case source.Claim.Status.Phase != corev1.ClaimBound || source.Claim.Spec.VolumeName == "":
		return fmt.Sprintf("claim %s, which is to be copied, is not bound", name), nil
	case source.Volume == nil:
		return fmt.Sprintf("volume %s of claim %s, which is to be copied, does not exist", plain(source.Claim.Spec.VolumeName), name), nil
	}
	volume := Read(source.Volume, provisioner)
	if volume.Kind == Original {
		return fmt.Sprintf("volume %s of claim %s, which is to be copied, is not adopted", plain(volume.Name), name), nil
	}
	if why := c.uncopyable(source, volume); why != "" {
		return "", refuse(fmt.Sprintf("claim %s cannot be copied: %s", name, why))
	}
	c.SourceFileSystemID = volume.FileSystemID
	c.Copies = operations.Source{
		SourcePath: volume.Path, SourceVolume: volume.Name, SourceClaim: c.Source, SourceClaimUID: string(volume.ClaimUID),
	}
	return "", nil
}

func (c *Claim) uncopyable(source Source, volume Volume) string {
	ref := source.Volume.Spec.ClaimRef
	size := source.Claim.Spec.Resources.Requests[corev1.ResourceStorage]
	_, shared := source.Volume.Annotations[wellknown.AnnotationSharedVolume]
	switch {
	case ref == nil || ref.UID != source.Claim.UID:
		return fmt.Sprintf("its volume %s is bound to another claim", plain(volume.Name))
	case shared:
		return "it is a SharedVolume's, which can be a whole file system: copy the data with a pod"
	case volume.Kind != Provisioned:
		return fmt.Sprintf("its volume %s was not made by this provisioner", plain(volume.Name))
	case volume.Problem != "":
		return fmt.Sprintf("its volume %s is not what it says it is: %s", plain(volume.Name), volume.Problem)
	case volume.Path == c.Path:
		return fmt.Sprintf("this claim has the same directory, %s: choose another %s", quoted(c.Path), wellknown.LabelVolumeName)
	case c.Capacity.Cmp(size) < 0:
		return fmt.Sprintf("it requests %s, and this claim only %s: request at least as much", size.String(), c.Capacity.String())
	}
	return ""
}

// IsRequested reports whether a claim asks this provisioner for a volume now: it is neither bound, nor about to be, nor
// being deleted, and has a class of the provisioner and, if that waits for its first consumer, a node. Other claims are
// neither refused nor provisioned. The class is the one that ClassName names, nil while there is none.
func IsRequested(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, provisioner string) bool {
	switch {
	case claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || claim.Status.Phase != corev1.ClaimPending:
		return false
	case AskedProvisioner(claim) != provisioner || OtherMaker(claim) != "":
		return false
	case ClassName(claim) == "" || class == nil || class.Provisioner != provisioner:
		return false
	}
	return !waitsForNode(class) || SelectedNode(claim) != ""
}

// ClassName returns the name of a claim's class: the old annotation wins, even when empty, as for the cluster's binder.
func ClassName(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[wellknown.AnnotationStorageClass]; ok {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}

// AskedProvisioner returns the provisioner that the cluster has asked for the volume, or "". Until then,
// the binder may bind the claim to an existing volume.
func AskedProvisioner(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[wellknown.AnnotationStorageProvisioner]; ok {
		return name
	}
	return claim.Annotations[wellknown.AnnotationBetaStorageProvisioner]
}

// SelectedNode returns the node that the scheduler chose, or "".
func SelectedNode(claim *corev1.PersistentVolumeClaim) string {
	return claim.Annotations[wellknown.AnnotationSelectedNode]
}

func waitsForNode(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// snapshotGroup and the core group have the data sources that provisioners copy, others those of volume populators.
const snapshotGroup = "snapshot.storage.k8s.io"

// labelVeleroRestore is in the selector of a claim that Velero's data mover restores. Velero fills a volume of
// another claim, and then binds it to this one, if that is not bound.
const labelVeleroRestore = "velero.io/dynamic-pv-restore"

// OtherMaker returns the program that makes a claim's volume in place of its provisioner, "" if there is none.
func OtherMaker(claim *corev1.PersistentVolumeClaim) string {
	if _, ok := matchLabels(claim)[labelVeleroRestore]; ok {
		return "Velero's data mover"
	}
	if group := dataSourceOf(claim.Spec).group; group != "" && group != snapshotGroup {
		return "a volume populator"
	}
	return ""
}
