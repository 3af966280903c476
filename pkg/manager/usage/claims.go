package usage

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// sync records what a claim's directory holds, if that has changed, and reports once when it is more than
// the claim requests: the record remembers that, so that no other leader repeats it.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	claim := c.gatherer.Caches.ClaimNamed(key.Namespace, key.Name)
	if claim == nil {
		return 0, nil
	}
	counted, ok := c.usageOf(claim)
	if !ok {
		return 0, nil
	}
	recorded, _ := volumes.ParseUsage(caches.UsageOf(claim))
	next, ok := recorded.Update(claim, counted)
	if !ok {
		return 0, nil
	}
	if err := c.writes.Wait(ctx); err != nil {
		return 0, err
	}
	err = objects.Patch(ctx, c.client, claim, objects.Metadata("annotations", map[string]string{wellknown.AnnotationUsage: next.Encode()}))
	if err == nil && next.OverRequest && !recorded.OverRequest {
		c.options.Events.Event(claim, corev1.EventTypeWarning, wellknown.EventVolumeOverRequest, overRequest(claim, next))
	}
	return 0, err
}

func overRequest(claim *corev1.PersistentVolumeClaim, usage volumes.UsageRecord) string {
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	used := resource.NewQuantity(usage.Bytes, resource.BinarySI)
	return fmt.Sprintf("the directory holds %s (%d bytes) in %d files, and the claim requests %s; nothing is refused", used, usage.Bytes, usage.Files, requested.String())
}

// usageOf is what a claim's directory holds: as this leader's surveys have counted it, else as it is recorded.
// ok is false if it is not known.
func (c *Controller) usageOf(claim *corev1.PersistentVolumeClaim) (usage volumes.UsageRecord, ok bool) {
	volume := c.gatherer.Caches.Volume(claim.Spec.VolumeName)
	if volume == nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return usage, false
	}
	if volumes.Read(volume, c.gatherer.Provisioner).Kind == volumes.Foreign {
		return usage, false
	}
	id, path, ok := caches.DirectoryOf(volume)
	if !ok {
		return usage, false
	}
	if usage, ok := c.measurements.of(id, path); ok {
		return usage, true
	}
	return volumes.ParseUsage(caches.UsageOf(claim))
}

func (c *Controller) allClaims() []*corev1.PersistentVolumeClaim {
	return caches.All[*corev1.PersistentVolumeClaim](c.gatherer.Caches.Claims)
}
