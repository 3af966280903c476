package volumes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

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

// isClaim reports whether it is a claim of a namespace.
func (r reference) isClaim(namespace string) bool {
	return r.group == "" && r.kind == "PersistentVolumeClaim" && (r.namespace == "" || r.namespace == namespace)
}

// setSource reads what the claim is to be a copy of. An empty volume in place of a copy would look like lost
// data.
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

// uncopyable returns why a bound claim cannot be copied, or "".
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
