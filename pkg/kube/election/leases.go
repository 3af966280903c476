package election

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"gnuthought.com/efs-stunnel/pkg/queue"
)

// ErrRestored is the error of a replica that gets an older version of the Lease than before: etcd was restored
// from a backup. Caches of the time before have objects that do not exist any more, and their watches go on
// as if nothing was missing. Only a new process reads everything again.
var ErrRestored = fmt.Errorf("the apiserver's versions have gone back, etcd was restored: %w", queue.ErrInterrupted)

// leases reads and writes the Lease, which its leader changes every few seconds, and notices when its version
// goes back. The requests of a replica follow one another.
type leases struct {
	client.LeasesGetter
	restored chan struct{} // closed when the version has gone back

	mu     sync.Mutex
	newest string // guarded by mu
}

// Leases implements LeasesGetter.
func (l *leases) Leases(namespace string) client.LeaseInterface {
	return observedLeases{l.LeasesGetter.Leases(namespace), l}
}

func (l *leases) isRestored() bool {
	select {
	case <-l.restored:
		return true
	default:
		return false
	}
}

func (l *leases) observe(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return lease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest != "" && !l.isRestored() {
		if order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, l.newest); err == nil && order < 0 {
			close(l.restored)
		}
	}
	l.newest = lease.ResourceVersion
	return lease, nil
}

type observedLeases struct {
	client.LeaseInterface
	leases *leases
}

// Get implements LeaseInterface.
func (o observedLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	return o.leases.observe(o.LeaseInterface.Get(ctx, name, options))
}

// Create implements LeaseInterface.
func (o observedLeases) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return o.leases.observe(o.LeaseInterface.Create(ctx, lease, options))
}

// Update implements LeaseInterface.
func (o observedLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return o.leases.observe(o.LeaseInterface.Update(ctx, lease, options))
}
