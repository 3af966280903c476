package table

import (
	"errors"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// watch has the caches enqueue keys. The ports loop observes no changes of its own: the table loop
// enqueues it.
func (c *Controller) watch() error {
	table := func() { c.queue.Add(tableKey) }
	tableSoon := func() { c.queue.AddAfter(tableKey, settleTime) }
	rootsSoon := func() { c.queue.AddAfter(rootsKey, settleTime) }
	if err := errors.Join(
		onChange(c.caches.Table, anyChange[*corev1.ConfigMap], table),
		onChange(c.caches.Pinned, anyChange[*corev1.ConfigMap], table),
		onChange(c.caches.Volumes, volumeMatters, tableSoon),
		onChange(c.caches.Claims, c.claimMatters, rootsSoon),
		onChange(c.caches.Jobs, jobMatters, rootsSoon),
	); err != nil {
		return fmt.Errorf("watching for discovery: %w", err)
	}
	return nil
}

// onChange enqueues on changes that matter. Before is nil for a new object, and after for a deleted one.
func onChange[T metav1.Object](informer cache.SharedIndexInformer, matters func(before, after T) bool, enqueue func()) error {
	return objects.OnChange(func(o, n any) {
		before, was := o.(T)
		after, is := n.(T)
		isResync := was && is && before.GetResourceVersion() == after.GetResourceVersion()
		if (was || is) && !isResync && matters(before, after) {
			enqueue()
		}
	}, informer)
}

func anyChange[T any](_, _ T) bool { return true }

// volumeMatters is false for the most frequent changes: volumes that are bound or released, with the
// right port and mount options.
func volumeMatters(before, after *corev1.PersistentVolume) bool {
	was, is := portsOf(before), portsOf(after)
	if was.Root || is.Root || strings.HasPrefix(was.Name+is.Name, wellknown.RootVolumePrefix) {
		return true
	}
	if before == nil || after == nil {
		return was.Loopback || is.Loopback
	}
	return was != is || harmfulOption(before) != harmfulOption(after)
}

func portsOf(volume *corev1.PersistentVolume) ports.Volume {
	if volume == nil {
		return ports.Volume{}
	}
	return ports.VolumeOf(volume)
}

// claimMatters is true for root claims only.
func (c *Controller) claimMatters(before, after *corev1.PersistentVolumeClaim) bool {
	claim := after
	if claim == nil {
		claim = before
	}
	return claim.Namespace == c.options.Namespace && strings.HasPrefix(claim.Name, wellknown.RootVolumePrefix)
}

// jobMatters is true for a Job that may be deleted from now on, so that its pods no longer protect a
// root claim.
func jobMatters(before, after *batchv1.Job) bool {
	return deletable(after) != "" && deletable(before) == ""
}
