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

// watch has the caches ask for syncs.
func (c *Controller) watch() error {
	for _, w := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{c.caches.Table, handler(anyChange[*corev1.ConfigMap], c.look)},
		{c.caches.Pinned, handler(anyChange[*corev1.ConfigMap], c.look)},
		{c.caches.Volumes, handler(volumeMatters, c.lookSoon)},
		{c.caches.Claims, handler(c.claimMatters, c.lookSoon)},
		{c.caches.Jobs, handler(jobMatters, c.lookSoon)},
	} {
		if _, err := w.informer.AddEventHandler(w.handler); err != nil {
			return fmt.Errorf("watching for discovery: %w", err)
		}
	}
	return nil
}

// object is any pointer to one of Kubernetes' objects.
type object interface {
	comparable
	GetResourceVersion() string
}

// handler calls act on changes that matter. Of an object that is new or gone, one side is nil.
func handler[T object](matters func(before, after T) bool, act func()) cache.ResourceEventHandler {
	var none T
	tell := func(before, after T) {
		if matters(before, after) {
			act()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if after, ok := o.(T); ok {
				tell(none, after)
			}
		},
		UpdateFunc: func(o, n any) {
			before, ok := o.(T)
			after, also := n.(T)
			if ok && also && before.GetResourceVersion() != after.GetResourceVersion() {
				tell(before, after)
			}
		},
		DeleteFunc: func(o any) {
			if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if before, ok := o.(T); ok {
				tell(before, none)
			}
		},
	}
}

func anyChange[T object](_, _ T) bool { return true }

// volumeMatters leaves out what most volumes do all day: they are bound, released and deleted,
// on the port that they should have.
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

// claimMatters is about root claims only.
func (c *Controller) claimMatters(before, after *corev1.PersistentVolumeClaim) bool {
	claim := after
	if claim == nil {
		claim = before
	}
	return claim.Namespace == c.options.Namespace && strings.HasPrefix(claim.Name, wellknown.RootVolumePrefix)
}

// jobMatters is about Jobs that no longer keep a root claim from going.
func jobMatters(before, after *batchv1.Job) bool {
	if after == nil {
		return false
	}
	_, is := usedUp(after)
	if before == nil {
		return is
	}
	_, was := usedUp(before)
	return is && !was
}
