// Package election has one of several replicas lead, by a Lease that it holds. It is client-go's
// leader election, with three things around it: the Lease is held until the leader's work has
// come to its end, it is given back then, and those who wait for it hear of that at once.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLost is that of a leader that could not renew its Lease in time, so that another one may
// lead already.
var ErrLost = errors.New("the lease is lost")

// Options say which Lease there is, and who wants it.
type Options struct {
	// Requests reads and writes the Lease. It should have a timeout below RenewDeadline, and a
	// rate limit of its own.
	Requests kubernetes.Interface
	// Watches hears of the Lease being given back. It must not have a timeout.
	Watches kubernetes.Interface

	Namespace, Name string // of the Lease
	Identity        string // unique among all replicas there ever are

	LeaseDuration time.Duration // how long others wait for a silent leader
	RenewDeadline time.Duration // how long a leader tries to renew before it gives up
	RetryPeriod   time.Duration // between two renewals

	Log *slog.Logger
}

// Times that nobody needs to choose.
const (
	// toleratedSilence is how long after its Lease has expired a leader that does not notice
	// still counts as healthy, as in Kubernetes' own programs.
	toleratedSilence = 20 * time.Second
	releaseTimeout   = 5 * time.Second
	// looksPerRenewal is how much more often those who wait look at the Lease than its holder
	// renews it. They see a renewal up to 2.2 of their periods late, and try that long after it
	// has expired: at the holder's own pace, both together are as much as half a Lease.
	looksPerRenewal = 4
)

// Election is one replica's part in it.
type Election struct {
	options Options
	health  *leaderelection.HealthzAdaptor
	leading atomic.Bool
}

// New takes no part yet. The error is about the options.
func New(o Options) (*Election, error) {
	e := &Election{options: o, health: leaderelection.NewLeaderHealthzAdaptor(toleratedSilence)}
	if _, err := leaderelection.NewLeaderElector(e.config(o.RetryPeriod, func() {})); err != nil {
		return nil, fmt.Errorf("preparing the election of %s: %w", o.Identity, err)
	}
	return e, nil
}

// Leading says whether this replica leads.
func (e *Election) Leading() bool { return e.leading.Load() }

// Check fails when this replica holds a Lease that has long expired, without noticing: then it
// is stuck, and only a restart helps.
func (e *Election) Check() error { return e.health.Check(nil) }

// Run waits to be elected, then leads. The work's context ends with ctx. The Lease is renewed
// until the work returns, and then given back; the work's error is Run's. A lost Lease is
// ErrLost, at once: what the work is doing then is cut off by the end of the process, which
// must be next.
func (e *Election) Run(ctx context.Context, work func(context.Context) error) error {
	t, err := e.await(ctx)
	if t == nil || err != nil {
		return err
	}
	if t, err = e.settle(ctx, t); t == nil || err != nil {
		return err
	}
	return e.lead(ctx, t, work)
}

// await waits until the Lease is ours. It returns nothing when the context ends first.
func (e *Election) await(ctx context.Context) (*term, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	released := e.watchReleases(watching)
	for {
		t, err := e.begin(ctx, e.options.RetryPeriod/looksPerRenewal)
		if err != nil {
			return nil, err
		}
		if e.wins(ctx, t, released) {
			return t, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		// A new elector tries at once, where that one might have been a while from its next try.
	}
}

// settle goes on with a Lease that was just won, at the pace of its holder.
func (e *Election) settle(ctx context.Context, won *term) (*term, error) {
	won.stop()
	<-won.over
	t, err := e.begin(ctx, e.options.RetryPeriod)
	if err != nil {
		return nil, err
	}
	if !e.wins(ctx, t, nil) {
		return nil, nil
	}
	return t, nil
}

// wins waits for the term's election, and ends the term when the context or a release of the
// Lease by another comes first.
func (e *Election) wins(ctx context.Context, t *term, released <-chan struct{}) bool {
	select {
	case <-t.elected:
	case <-ctx.Done():
	case <-released:
	}
	if !t.isElected() {
		e.end(ctx, t)
		return false
	}
	return true
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
	case <-t.over:
		cancel(ErrLost)
		return fmt.Errorf("renewing lease %s/%s for %s: %w", e.options.Namespace, e.options.Name, e.options.RenewDeadline, ErrLost)
	}
}

// term is one run of client-go's elector: waiting for the Lease, then holding it.
type term struct {
	elected chan struct{} // closed when the Lease is ours
	over    chan struct{} // closed when the elector has returned
	stop    context.CancelFunc
}

func (t *term) isElected() bool {
	select {
	case <-t.elected:
		return true
	default:
		return false
	}
}

// begin starts an elector whose context outlives ours: the Lease must be renewed while the work
// comes to its end.
func (e *Election) begin(ctx context.Context, period time.Duration) (*term, error) {
	t := &term{elected: make(chan struct{}), over: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(e.config(period, func() { close(t.elected) }))
	if err != nil {
		return nil, fmt.Errorf("taking part in the election: %w", err)
	}
	holding, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	e.health.SetLeaderElection(elector)
	go func() {
		defer close(t.over)
		elector.Run(holding)
	}()
	return t, nil
}

// end also gives back a Lease that the elector won in its last moment.
func (e *Election) end(ctx context.Context, t *term) {
	t.stop()
	<-t.over
	e.release(ctx)
}

// config leaves ReleaseOnCancel off: client-go would also try to give back a Lease that it could
// not renew, and tell us of the loss only after that, when another replica may lead already.
func (e *Election) config(period time.Duration, elected func()) leaderelection.LeaderElectionConfig {
	return leaderelection.LeaderElectionConfig{
		Name:          e.options.Name,
		Lock:          e.lock(),
		LeaseDuration: e.options.LeaseDuration,
		RenewDeadline: e.options.RenewDeadline,
		RetryPeriod:   period,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { elected() },
			OnStoppedLeading: func() {},
			OnNewLeader:      e.tellLeader,
		},
	}
}

func (e *Election) tellLeader(identity string) {
	if identity != "" && identity != e.options.Identity {
		e.options.Log.Info("standing by", "reason", "leader is "+identity)
	}
}

func (e *Election) lock() *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.options.Namespace, Name: e.options.Name},
		Client:     e.options.Requests.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.options.Identity},
	}
}

// release gives the Lease back if it is ours. Where that fails, others wait until it expires.
func (e *Election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	lock := e.lock()
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == e.options.Identity {
		now := metav1.Now()
		err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
		})
	}
	if err != nil {
		e.options.Log.Warn("lease could not be given back; it expires", "duration", e.options.LeaseDuration, "err", err)
	}
}
