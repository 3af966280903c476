package claims

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// delete deletes the object first, and removes our finalizer last: a writer that comes between finds
// a volume that is being deleted.
func (c *Controller) delete(ctx context.Context, s lifecycle.State, change lifecycle.DeleteVolume) error {
	object := change.Object
	if _, deleted := c.deleted.Get(object.UID); deleted {
		return nil // the cache has not observed it yet
	}
	if object.DeletionTimestamp == nil {
		err := c.client.CoreV1().PersistentVolumes().Delete(ctx, object.Name, kubeobjects.OnlyThis(object))
		if kubeobjects.IsGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting volume %s: %w", object.Name, err)
		}
	}
	if err := c.removeFinalizer(ctx, object, change.MakerJobs); err != nil {
		return err
	}
	c.deleted.Set(object.UID, nil, deletedMemory)
	c.metrics.deleted.Observe(secondsSince(releasedAt(object), s.Now))
	c.options.Log.InfoContext(ctx, "volume deleted",
		slog.String("volume", object.Name), slog.String("fileSystem", object.Annotations[wellknown.AnnotationFileSystemID]))
	return nil
}

// deletedMemory is longer than a cache is ever behind while its watch works.
const deletedMemory = 10 * time.Second

func releasedAt(object *corev1.PersistentVolume) time.Time {
	if at := object.Status.LastPhaseTransitionTime; at != nil {
		return at.Time
	}
	if object.DeletionTimestamp != nil {
		return object.DeletionTimestamp.Time
	}
	return object.CreationTimestamp.Time
}

// removeFinalizer lets the volume be deleted without us. First, no Job may be left from whose outcome
// it would be created again.
func (c *Controller) removeFinalizer(ctx context.Context, object *corev1.PersistentVolume, makerJobs []string) error {
	if err := c.markUsed(ctx, object.Name, makerJobs); err != nil {
		return err
	}
	return kubeobjects.RemoveFinalizer(ctx, c.client, object, wellknown.FinalizerVolume)
}

// adopt updates the object instead of patching it: if it was changed since, the next sync decides again.
func (c *Controller) adopt(ctx context.Context, object *corev1.PersistentVolume) error {
	changed := object.DeepCopy()
	volumes.Adopt(changed)
	_, err := c.client.CoreV1().PersistentVolumes().Update(ctx, changed, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("adopting volume %s: %w", object.Name, err)
	}
	c.tell.Say(object, wellknown.EventVolumeAdopted, "the volume of the original provisioner is now managed like all others")
	return nil
}

func (c *Controller) expandVolume(ctx context.Context, change lifecycle.ExpandVolume) error {
	capacity := map[string]any{string(corev1.ResourceStorage): change.Size.String()}
	return kubeobjects.Patch(ctx, c.client, change.Object, map[string]any{"spec": map[string]any{"capacity": capacity}})
}

func (c *Controller) expandClaim(ctx context.Context, change lifecycle.ExpandClaim) error {
	status := volumes.ExpandedStatus(change.Claim, change.Size)
	if err := kubeobjects.Patch(ctx, c.client, change.Claim, map[string]any{"status": status}, "status"); err != nil {
		return err
	}
	c.tell.SayOf(change.Claim, wellknown.EventVolumeResizeSuccessful, "size",
		fmt.Sprintf("volume %s has %s now; EFS grows with its files, so nothing else had to change", change.Volume, &change.Size))
	return nil
}
