package jobs

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// liveObjects are the volumes and claims that a batch with cleanups is about, as the apiserver has them.
type liveObjects struct {
	volumes map[string]*corev1.PersistentVolume
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
}

// readLive reads what a batch is about as it is now or later. What many objects are read of, the caches
// answer if they are known to be as new: while many claims are deleted, they nearly always are.
func (c *Controller) readLive(ctx context.Context, batch []decide.Pending) (now liveObjects, err error) {
	var names []string
	owners := map[types.NamespacedName]bool{}
	addOwner := func(namespace, claim string) {
		if namespace != "" && claim != "" {
			owners[types.NamespacedName{Namespace: namespace, Name: claim}] = true
		}
	}
	for _, pending := range batch {
		if pending.Operation.Kind != operations.Cleanup {
			continue
		}
		names = append(names, pending.Operation.Volume)
		for _, blocker := range pending.Blockers {
			names = append(names, blocker.Volume)
			addOwner(blocker.Namespace, blocker.Claim)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	volumesCurrent, claimsCurrent := c.current(ctx, len(names))
	if now.volumes, err = c.volumesNow(ctx, names, volumesCurrent); err != nil {
		return now, err
	}
	for _, object := range now.volumes {
		if ref := object.Spec.ClaimRef; ref != nil {
			addOwner(ref.Namespace, ref.Name)
		}
	}
	now.claims, err = c.claimsNow(ctx, slices.Collect(maps.Keys(owners)), claimsCurrent)
	return now, err
}

// needsCleanup says whether a cleanup is still right for the volume as it is now.
func (l liveObjects) needsCleanup(o operations.Operation, provisioner string) bool {
	object := l.volumes[o.Volume]
	if object == nil || object.Spec.ClaimRef == nil {
		return false
	}
	claim := l.claims[types.NamespacedName{Namespace: object.Spec.ClaimRef.Namespace, Name: object.Spec.ClaimRef.Name}]
	volume := volumes.Read(object, provisioner)
	return volume.NeedsCleanup(claim) && volume.Path == o.Path && string(volume.ClaimUID) == o.ClaimUID
}

// current says of which of the two kinds the caches are known to be as new as this call.
func (c *Controller) current(ctx context.Context, count int) (volumes, claims bool) {
	if count <= objects.ManyObjects {
		return false, false
	}
	isCurrent := func(informer cache.SharedIndexInformer) bool {
		return caches.Count(informer) > count && c.gatherer.Caches.IsCurrent(ctx, informer) // a list of fewer costs as little
	}
	var asking sync.WaitGroup
	asking.Go(func() { volumes = isCurrent(c.gatherer.Caches.Volumes) })
	asking.Go(func() { claims = isCurrent(c.gatherer.Caches.Claims) })
	asking.Wait()
	return volumes, claims
}

func (c *Controller) volumesNow(ctx context.Context, names []string, current bool) (map[string]*corev1.PersistentVolume, error) {
	if current {
		return caches.Found(names, c.gatherer.Caches.Volume), nil
	}
	return c.live.Volumes(ctx, names, caches.Count(c.gatherer.Caches.Volumes))
}

func (c *Controller) claimsNow(
	ctx context.Context, names []types.NamespacedName, current bool,
) (map[types.NamespacedName]*corev1.PersistentVolumeClaim, error) {
	if current {
		return caches.Found(names, func(name types.NamespacedName) *corev1.PersistentVolumeClaim {
			return c.gatherer.Caches.ClaimNamed(name.Namespace, name.Name)
		}), nil
	}
	return c.live.Claims(ctx, names, caches.Count(c.gatherer.Caches.Claims))
}
