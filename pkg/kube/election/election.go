// Package election elects one of several replicas as the leader, by a Lease. It is client-go's leader
// election, and beyond it: the leader holds the Lease until its work has ended, releases it then, and
// standbys see the release at once.
package election

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	informers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"gnuthought.com/efs-stunnel/pkg/program/loop"
	"gnuthought.com/efs-stunnel/pkg/queue"
)

// ErrLost is the error of a leader that could not renew its Lease in time. Another replica may lead already.
var ErrLost = fmt.Errorf("the lease is lost: %w", queue.ErrInterrupted)

// Options are the Lease, the replica, and the times of the election.
type Options struct {
	// Requests reads and writes the Lease. It should have a timeout below RenewDeadline, and a
	// rate limit of its own.
	Requests kubernetes.Interface
	// Watches watches the Lease for releases. It must not have a timeout.
	Watches kubernetes.Interface

	Namespace, Name string // of the Lease
	Identity        string // unique among all replicas there ever are

	LeaseDuration time.Duration // how long standbys wait for a leader that does not renew
	RenewDeadline time.Duration // how long a leader tries to renew before it gives up
	RetryPeriod   time.Duration // between two renewals

	Log *slog.Logger
}

const (
	// healthTolerance is how long after its Lease has expired a leader that does not notice
	// still counts as healthy, as in Kubernetes' own programs.
	healthTolerance = 20 * time.Second
	releaseTimeout  = 5 * time.Second
	// standbyFactor is how much more often standbys read the Lease than its holder renews it. They see
	// a renewal up to 2.2 of their periods late, and try that long after it has expired: at the holder's
	// own pace, both together are as much as half a Lease.
	standbyFactor = 4
)

// Election is that of one replica.
type Election struct {
	options Options
	leases  *leases
	lock    *resourcelock.LeaseLock
	health  *leaderelection.HealthzAdaptor
	leading atomic.Bool
}

// New sends no request. The error is about the options.
func New(o Options) (*Election, error) {
	restored := make(chan struct{})
	e := &Election{
		options: o, health: leaderelection.NewLeaderHealthzAdaptor(healthTolerance),
		leases: &leases{
			LeaseInterface: o.Requests.CoordinationV1().Leases(o.Namespace),
			restored:       restored, restore: sync.OnceFunc(func() { close(restored) }),
		},
	}
	e.lock = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name},
		Client:     e.leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}
	if _, err := leaderelection.NewLeaderElector(e.config(o.RetryPeriod, func() {}, func() {})); err != nil {
		return nil, fmt.Errorf("preparing the election of %s: %w", o.Identity, err)
	}
	return e, nil
}

// Leading reports whether this replica leads.
func (e *Election) Leading() bool { return e.leading.Load() }

// Check fails when this replica holds a Lease that has long expired, without noticing: then it
// is stuck, and only a restart helps.
func (e *Election) Check() error { return e.health.Check(nil) }

// Run waits to be elected, then leads. The work's context ends with ctx. The Lease is renewed until the
// work returns, and released then; the work's error is Run's. When the Lease is lost, Run returns ErrLost
// at once, and when etcd was restored ErrRestored. The process must exit then, to interrupt the work.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) error {
	won, err := e.await(ctx)
	if won == nil {
		return err
	}
	// The leader continues with an elector at its own pace, which renews the Lease first.
	won.stop()
	t, err := e.elect(ctx, e.options.RetryPeriod, nil)
	if t == nil {
		return err
	}
	return e.lead(ctx, t, work)
}

// await runs electors of a standby until one wins. It returns nil if the context ends before.
func (e *Election) await(ctx context.Context) (won *term, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	released := e.watchReleases(watching)
	for won == nil && err == nil && ctx.Err() == nil {
		// After a release, a new elector tries at once, where the old one would wait for its period.
		won, err = e.elect(ctx, e.options.RetryPeriod/standbyFactor, released)
	}
	return won, err
}

// term is one run of client-go's elector, which waits for the Lease and then holds it.
type term struct {
	over chan struct{} // closed when the elector has ended
	stop func()        // returns when it has
}

// elect runs an elector until it wins. It returns nil if the context ends or another replica releases the
// Lease before. The elector's context outlives ours: the Lease must be renewed until the work has ended.
func (e *Election) elect(ctx context.Context, period time.Duration, released <-chan struct{}) (*term, error) {
	elected, over := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(e.config(period, func() { close(elected) }, func() { close(over) }))
	if err != nil {
		return nil, fmt.Errorf("taking part in the election: %w", err)
	}
	e.health.SetLeaderElection(elector)
	holding, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go elector.Run(holding)
	t := &term{over: over, stop: func() {
		cancel()
		<-over
	}}
	select {
	case <-elected:
	case <-ctx.Done():
	case <-released:
	case <-e.leases.restored:
	}
	select {
	case <-elected:
		return t, nil
	default:
		e.end(ctx, t)
		return nil, e.restoredError()
	}
}

func (e *Election) restoredError() error {
	select {
	case <-e.leases.restored:
		return fmt.Errorf("reading lease %s/%s: %w", e.options.Namespace, e.options.Name, ErrRestored)
	default:
		return nil
	}
}

func (e *Election) lead(ctx context.Context, t *term, work func(context.Context) error) error {
	e.leading.Store(true)
	defer e.leading.Store(false)
	e.options.Log.Info("leading")
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- work(working) }()
	select {
	case err := <-done:
		e.end(ctx, t)
		e.options.Log.Info("no longer leading")
		return err
	case <-e.leases.restored:
		cancel(ErrRestored)
		t.stop()
		return e.restoredError()
	case <-t.over:
		cancel(ErrLost)
		return fmt.Errorf("renewing lease %s/%s for %s: %w", e.options.Namespace, e.options.Name, e.options.RenewDeadline, ErrLost)
	}
}

// end also releases a Lease that the elector won in its last moment.
func (e *Election) end(ctx context.Context, t *term) {
	t.stop()
	e.release(ctx)
}

// config leaves ReleaseOnCancel off: client-go would also try to release a Lease that it could not renew,
// and report the loss only after that, when another replica may lead already.
func (e *Election) config(period time.Duration, elected, ended func()) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Name:          e.options.Name,
		Lock:          e.lock,
		LeaseDuration: e.options.LeaseDuration,
		RenewDeadline: e.options.RenewDeadline,
		RetryPeriod:   period,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { elected() },
			OnStoppedLeading: ended,
			OnNewLeader: func(identity string) {
				if identity != "" && identity != e.options.Identity {
					e.options.Log.Info("standing by", "leader", identity)
				}
			},
		},
	}
}

// release clears the Lease if it is ours. On error, standbys wait until it expires.
func (e *Election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	record, _, err := e.lock.Get(ctx)
	if err == nil && record.HolderIdentity == e.options.Identity {
		now := metav1.Now()
		err = e.lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil {
		e.options.Log.Warn("lease was not released; it expires", "duration", e.options.LeaseDuration, "err", err)
	}
}

// watchReleases sends when another replica releases the Lease, which electors read only every 2.2 periods
// at worst. A deleted Lease is not released: its leader creates it again.
func (e *Election) watchReleases(ctx context.Context) <-chan struct{} {
	released := loop.NewWake()
	informer := informers.NewFilteredLeaseInformer(e.options.Watches, e.options.Namespace, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, e.options.Name).String()
	})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		if was := e.holder(before); was != "" && was != e.options.Identity && e.holder(after) == "" {
			released.Request()
		}
	}})
	if err != nil { // only if the informer was stopped
		e.options.Log.Warn("releases of the lease are not watched", "err", err)
	}
	go informer.RunWithContext(ctx)
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

// ErrRestored is the error of a replica that gets an older version of the Lease than before: etcd was restored
// from a backup. Caches of the time before have objects that do not exist any more, and their watches go on
// as if nothing was missing. Only a new process reads everything again.
var ErrRestored = fmt.Errorf("the apiserver's versions have gone back, etcd was restored: %w", queue.ErrInterrupted)

// leases reads and writes the Lease, which its leader changes every few seconds, and notices when its version
// goes back. The requests of a replica follow one another.
type leases struct {
	client.LeaseInterface
	restored <-chan struct{} // closed by restore, when the version has gone back
	restore  func()

	mu     sync.Mutex
	newest string // guarded by mu
}

// Leases implements LeasesGetter for the Lease's namespace.
func (l *leases) Leases(string) client.LeaseInterface { return l }

func (l *leases) observe(lease *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return lease, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, l.newest); err == nil && order < 0 {
		l.restore()
	}
	l.newest = lease.ResourceVersion
	return lease, nil
}

func (l *leases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.observe(l.LeaseInterface.Get(ctx, name, options))
}

func (l *leases) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.observe(l.LeaseInterface.Create(ctx, lease, options))
}

func (l *leases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.observe(l.LeaseInterface.Update(ctx, lease, options))
}
