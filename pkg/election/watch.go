package election

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// watchReleases tells when another replica gives the Lease back. Electors only look now and
// then, up to 2.2 retry periods apart. A deleted Lease is no such news: its leader makes it
// again.
func (e *Election) watchReleases(ctx context.Context) <-chan struct{} {
	released := make(chan struct{}, 1)
	factory := informers.NewSharedInformerFactoryWithOptions(e.options.Watches, 0,
		informers.WithNamespace(e.options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, e.options.Name).String()
		}))
	informer := factory.Coordination().V1().Leases().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if e.isRelease(before, after) {
			select {
			case released <- struct{}{}:
			default: // one is enough
			}
		}
	}})
	if err != nil { // only of an informer that has ended
		e.options.Log.Warn("releases of the lease are not watched", "err", err)
	}
	factory.StartWithContext(ctx)
	return released
}

func (e *Election) isRelease(before, after any) bool {
	old, ok := before.(*coordinationv1.Lease)
	if !ok {
		return false
	}
	lease, ok := after.(*coordinationv1.Lease)
	was := holder(old)
	return ok && lease.Name == e.options.Name && was != "" && was != e.options.Identity && holder(lease) == ""
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
