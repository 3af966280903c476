package election

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// watchReleases sends when another replica releases the Lease, which electors read only every 2.2 periods
// at worst. A deleted Lease is not released: its leader creates it again.
func (e *Election) watchReleases(ctx context.Context) <-chan struct{} {
	released := make(chan struct{}, 1)
	factory := informers.NewSharedInformerFactoryWithOptions(e.options.Watches, 0,
		informers.WithNamespace(e.options.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, e.options.Name).String()
		}))
	informer := factory.Coordination().V1().Leases().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if was := e.holder(before); was == "" || was == e.options.Identity || e.holder(after) != "" {
			return
		}
		select {
		case released <- struct{}{}:
		default: // one is pending
		}
	}})
	if err != nil { // only if the informer was stopped
		e.options.Log.Warn("releases of the lease are not watched", "err", err)
	}
	factory.StartWithContext(ctx)
	return released
}

// holder returns the identity in the Lease, "" if it is released.
func (e *Election) holder(object any) string {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || lease.Name != e.options.Name || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
