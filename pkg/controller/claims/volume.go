package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func (c *Controller) applyToVolume(ctx context.Context, s lifecycle.State, plan lifecycle.VolumePlan) error {
	c.tellVolume(plan)
	err := c.changeVolume(ctx, s, plan)
	c.tellRejected(plan.Object, wellknown.EventVolumeFailedDelete, err)
	if plan.Delete || plan.Adopt {
		return err
	}
	expandErr := c.expand(ctx, s.Claim, plan)
	if s.Claim != nil {
		c.tellRejected(s.Claim, wellknown.EventVolumeResizeFailed, expandErr)
	}
	return errors.Join(err, expandErr)
}

// changeVolume does what a plan asks for, but for the volume's size.
func (c *Controller) changeVolume(ctx context.Context, s lifecycle.State, plan lifecycle.VolumePlan) error {
	switch {
	case plan.Delete:
		return c.delete(ctx, s, plan)
	case plan.Adopt:
		return c.adopt(ctx, plan.Object)
	}
	return c.editFinalizer(ctx, plan)
}

func (c *Controller) tellVolume(plan lifecycle.VolumePlan) {
	object := plan.Object
	if plan.Problem != "" {
		c.tell.WarnOf(object, wellknown.EventVolumeFailedDelete, "problem", plan.Problem)
	}
	if plan.Failed != nil {
		c.tell.WarnOf(object, wellknown.EventVolumeFailedDelete, plan.Failed.Job,
			fmt.Sprintf("Job %s could not %s: %s", plan.Failed.Job, doing(plan.Failed), plan.Failed.Why()))
	}
	if plan.Skipped != "" {
		c.tell.Warn(object, wellknown.EventVolumeDeleteSkipped, "the volume goes, its directory stays: "+plan.Skipped)
	}
	if plan.Gone {
		c.tell.Warn(object, wellknown.EventFileSystemGone, fmt.Sprintf("file system %s no longer exists, so there is nothing to clean up: the volume may go",
			object.Annotations[wellknown.AnnotationFileSystemID]))
	}
}

func doing(a *lifecycle.Attempt) string {
	if a.Operation.Adopt {
		return "enter the volume's owner on the file system"
	}
	return "remove the directory"
}

// delete ends a volume whose directory has been dealt with. The object goes first and our
// finalizer last: whoever comes between finds a volume that is on its way out.
func (c *Controller) delete(ctx context.Context, s lifecycle.State, plan lifecycle.VolumePlan) error {
	object := plan.Object
	if _, ended := c.ended.Get(object.UID); ended {
		return nil // the cache has not seen it yet
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
	if err := c.removeFinalizer(ctx, plan); err != nil {
		return err
	}
	c.ended.Set(object.UID, nil, endedMemory)
	c.metrics.deleted.Observe(secondsSince(releasedAt(object), s.Now))
	c.options.Log.InfoContext(ctx, "volume deleted",
		slog.String("volume", object.Name), slog.String("fileSystem", object.Annotations[wellknown.AnnotationFileSystemID]))
	return nil
}

// endedMemory is longer than a cache is ever behind while its watch works.
const endedMemory = 10 * time.Second

func releasedAt(object *corev1.PersistentVolume) time.Time {
	if at := object.Status.LastPhaseTransitionTime; at != nil {
		return at.Time
	}
	if object.DeletionTimestamp != nil {
		return object.DeletionTimestamp.Time
	}
	return object.CreationTimestamp.Time
}

// adopt makes a volume of the original system ours. A volume that somebody changed since is
// looked at again first.
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

func (c *Controller) editFinalizer(ctx context.Context, plan lifecycle.VolumePlan) error {
	switch {
	case plan.RemoveFinalizer:
		return c.removeFinalizer(ctx, plan)
	case plan.AddFinalizer:
		return kubeobjects.Patch(ctx, c.client, plan.Object, kubeobjects.Metadata("finalizers", []string{wellknown.FinalizerVolume}))
	}
	return nil
}

// removeFinalizer lets the volume be deleted without us. First, nothing may be left that would make
// it again.
func (c *Controller) removeFinalizer(ctx context.Context, plan lifecycle.VolumePlan) error {
	if err := c.markUsed(ctx, plan.Object.Name, plan.Spent); err != nil {
		return err
	}
	return kubeobjects.RemoveFinalizer(ctx, c.client, plan.Object, wellknown.FinalizerVolume)
}

// markUsed tells Jobs that no volume comes of what they did for this one.
func (c *Controller) markUsed(ctx context.Context, volume string, spent []string) error {
	for _, job := range c.gatherer.Caches.JobsOfVolume(volume) {
		if !slices.Contains(spent, job.Name) {
			continue
		}
		mark := map[string]string{wellknown.AnnotationUsed(volume): wellknown.ValueTrue}
		if err := kubeobjects.Patch(ctx, c.client, job, kubeobjects.Metadata("annotations", mark)); err != nil {
			return err
		}
	}
	return nil
}

// expand writes the next number of a claim that has grown.
func (c *Controller) expand(ctx context.Context, claim *corev1.PersistentVolumeClaim, plan lifecycle.VolumePlan) error {
	if size := plan.Expand.Volume; size != nil {
		capacity := map[string]any{string(corev1.ResourceStorage): size.String()}
		return kubeobjects.Patch(ctx, c.client, plan.Object, map[string]any{"spec": map[string]any{"capacity": capacity}})
	}
	size := plan.Expand.Claim
	if size == nil || claim == nil {
		return nil
	}
	if err := kubeobjects.Patch(ctx, c.client, claim, map[string]any{"status": volumes.ExpandedStatus(claim, *size)}, "status"); err != nil {
		return err
	}
	c.tell.SayOf(claim, wellknown.EventVolumeResizeSuccessful, "size", fmt.Sprintf("volume %s has %s now; EFS grows with its files, so nothing else had to change", plan.Object.Name, size))
	return nil
}
