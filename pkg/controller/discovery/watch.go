package discovery

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// watch has the caches enqueue keys. The loop of ports has no events of its own: a volume's port is
// judged with the table.
func (c *Controller) watch() error {
	table := func() { c.queue.Add(tableKey) }
	tableSoon := func() { c.queue.AddAfter(tableKey, settleTime) }
	rootsSoon := func() { c.queue.AddAfter(rootsKey, settleTime) }
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{c.caches.Table, handler(anyChange[*corev1.ConfigMap], table)},
		{c.caches.Pinned, handler(anyChange[*corev1.ConfigMap], table)},
		{c.caches.Volumes, handler(volumeMatters, tableSoon)},
		{c.caches.Claims, handler(c.claimMatters, rootsSoon)},
		{c.caches.Jobs, handler(jobMatters, rootsSoon)},
	} {
		if _, err := w.informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching for discovery: %w", err)
		}
	}
	return nil
}

// object is a pointer to one of Kubernetes' objects.
type object interface {
	GetResourceVersion() string
}

// handler enqueues on changes that matter. Of an object that is new or deleted, one side is nil.
func handler[T object](matters func(before, after T) bool, enqueue func()) cache.ResourceEventHandler {
	changed := func(o, n any) {
		before, was := o.(T)
		after, is := n.(T)
		isResync := was && is && before.GetResourceVersion() == after.GetResourceVersion()
		if (was || is) && !isResync && matters(before, after) {
			enqueue()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o) },
		UpdateFunc: changed,
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			changed(o, nil)
		},
	}
}

func anyChange[T object](_, _ T) bool { return true }

// volumeMatters is false for what most volumes do all day: they are bound, released and deleted,
// with the right port.
func volumeMatters(before, after *corev1.PersistentVolume) bool {
	was, is := portsOf(before), portsOf(after)
	if was.Root || is.Root || strings.HasPrefix(was.Name+is.Name, wellknown.RootVolumePrefix) {
		return true
	}
	if before == nil || after == nil {
		return was.Loopback || is.Loopback
	}
	return was != is
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
