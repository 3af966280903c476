package binding

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// fits reports whether the binder would bind a claim to a volume that was made for it.
func fits(volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	attributes := claim.Spec.VolumeAttributesClassName
	return claim.UID == volume.Spec.ClaimRef.UID && volume.Name == volumes.VolumeName(claim.UID) &&
		claim.Spec.VolumeName == "" && claim.Status.Phase == corev1.ClaimPending &&
		claim.DeletionTimestamp == nil && volume.DeletionTimestamp == nil &&
		volumes.ClassName(claim) == volume.Spec.StorageClassName && (attributes == nil || *attributes == "") &&
		volume.Spec.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) >= 0
}

// bind makes the three writes of the binder, in its order. Each is for an object as it was observed. The volume's name
// and the annotation that a binding is complete are one write: the scheduler refuses pods whose claim has only the name.
func (c *Controller) bind(ctx context.Context, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	bound := volume.DeepCopy()
	bound.Status.Phase = corev1.VolumeBound
	if err := objects.PatchVolume(ctx, c.client, volume, bound, "status"); err != nil {
		return err
	}
	named := claim.DeepCopy()
	named.Spec.VolumeName = volume.Name
	for _, annotation := range []string{wellknown.AnnotationBindCompleted, wellknown.AnnotationBoundByController} {
		metav1.SetMetaDataAnnotation(&named.ObjectMeta, annotation, "yes")
	}
	named, err := c.patch(ctx, claim, named)
	if err != nil {
		return err
	}
	done := named.DeepCopy()
	done.Status.Phase, done.Status.AccessModes, done.Status.Capacity = corev1.ClaimBound, volume.Spec.AccessModes, volume.Spec.Capacity
	_, err = c.patch(ctx, named, done, "status")
	return err
}

func (c *Controller) patch(ctx context.Context, is, want *corev1.PersistentVolumeClaim, subresources ...string) (*corev1.PersistentVolumeClaim, error) {
	patch, err := objects.StrategicMerge(is, want)
	if err != nil {
		return nil, err
	}
	claims := c.client.CoreV1().PersistentVolumeClaims(is.Namespace)
	return claims.Patch(ctx, is.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresources...)
}
