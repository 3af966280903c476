// Package discovery is the control loop that turns file systems into the port table, root
// volumes and root claims, and corrects the ports of volumes that disagree with the table.
//
//	EFS API --poller--> findings \
//	ConfigMaps, volumes, claims, Jobs (caches) --observe--> state --plan--> table, corrections, roots
//	                                                                --apply--> cluster, Snapshot
//
// The API is asked by a goroutine of its own, so that one that hangs keeps no root volume from
// being healed. Everything is decided by ports.Assign and volumes.RootPair.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/controller/pairs"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Options say what is discovered, and for whom.
type Options struct {
	// Namespace is the manager's: of the ConfigMaps, root claims and mount Jobs.
	Namespace string
	// Provisioner is in the volumes that are ours.
	Provisioner string
	// PollingInterval is the time between two polls, to which chance adds up to
	// wellknown.PollingJitter of it.
	PollingInterval time.Duration
	// Range is where new ports come from.
	Range ports.Range
	// Filter is the part of the file systems that the cluster may use. What the administrator
	// pinned passes always.
	Filter efs.Filter
	// VPCID is where the nodes are; "" when unknown.
	VPCID string
	// Demand is the access points that somebody asks for, and the tunnels that must show who they
	// are; nil for none that is known. Access points get ports when EFS has confirmed them.
	Demand func() ports.Demand
	// DNSSuffix follows a file system's id in its certificate, as efs.us-east-1.amazonaws.com.
	DNSSuffix string
	// Now is the apiserver's time, which is written into the table; nil is time.Now.
	Now func() time.Time

	Log     *slog.Logger
	Events  record.EventRecorder
	Metrics prometheus.Registerer
}

func (o Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// API is what EFS is asked. Every call should end in bounded time.
type API interface {
	ListFileSystems(ctx context.Context) (efs.Listing, error)
	// FileSystemExists answers false only when EFS says that there is no such file system.
	FileSystemExists(ctx context.Context, id string) (bool, error)
	// ListAccessPoints gives all of a file system.
	ListAccessPoints(ctx context.Context, fileSystemID string) ([]efs.AccessPoint, error)
	// FindAccessPoint finds none only when EFS says that there is none.
	FindAccessPoint(ctx context.Context, id string) (point efs.AccessPoint, found bool, err error)
}

// Times of the loop.
const (
	pollTimeout   = 5 * time.Minute        // of one poll, should the API's own limits fail
	kickInterval  = 10 * time.Second       // between two polls, whoever asks for them
	settleTime    = 200 * time.Millisecond // changes come in crowds; one look is enough for many
	firstRetry    = 500 * time.Millisecond
	maxRetry      = time.Minute
	drainTimeout  = 20 * time.Second
	controlLoop   = "discovery"
	everythingKey = "all" // the queue's only key
)

// Controller is the discovery loop of one cluster.
type Controller struct {
	options Options
	caches  *caches.Caches
	world   observer
	exec    executor
	poller  *poller // nil without an API
	queue   *queue.Queue[string]
	tell    *teller
	metrics *metrics
	memory  memory // of the sync; there is never more than one

	snapshot  atomic.Pointer[targets.Snapshot] // nil before the first
	listening sync.Mutex
	listeners []func() // guarded by listening
}

// New makes the loop and has the caches tell it of changes; it starts nothing. Without an API
// the pinned targets are all there are. An error says which option is wrong or which metric is
// there already.
func New(client kubernetes.Interface, c *caches.Caches, api API, o Options) (*Controller, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("making the discovery loop: %w", err)
	}
	log := o.Log // the queue names its loop itself
	o.Log = o.Log.With("controller", controlLoop)
	d := &Controller{
		options: o, caches: c,
		world: newObserver(client, c, o),
		tell:  &teller{events: o.Events, log: o.Log},
	}
	d.queue = queue.New(queue.Options{
		Name: controlLoop, KeyName: "fileSystem",
		FirstRetry: firstRetry, MaxRetry: maxRetry, DrainTimeout: drainTimeout, Log: log,
	}, d.sync)
	var err error
	if d.metrics, err = newMetrics(o); err != nil {
		return nil, err
	}
	d.exec = executor{client: client, options: o, tell: d.tell, metrics: d.metrics}
	if api != nil {
		d.metrics.polls = true
		d.poller = newPoller(api, o, d.metrics.failed, d.look)
	}
	return d, d.watch()
}

func (o Options) check() error {
	if o.Namespace == "" || o.PollingInterval <= 0 {
		return fmt.Errorf("namespace %q, polling interval %s: want a name, and a time above 0", o.Namespace, o.PollingInterval)
	}
	return o.Range.Check()
}

// Run polls and syncs until the context ends and the running sync is done. Only the leader may
// run it, and only once.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.caches.Await(ctx); err != nil {
		return nil //nolint:nilerr // the end came before the beginning
	}
	var polling sync.WaitGroup
	if c.poller != nil {
		polling.Go(func() { c.poller.run(ctx) })
	}
	err := c.queue.Run(ctx, 1, c.look)
	polling.Wait()
	return err
}

// Snapshot is what is known of the file systems; zero before there is a table.
func (c *Controller) Snapshot() targets.Snapshot {
	if s := c.snapshot.Load(); s != nil {
		return *s
	}
	return targets.Snapshot{}
}

// Kick asks for a poll soon, because somebody wants a file system that is not known. There is
// at most one poll in 10 s.
func (c *Controller) Kick() {
	if c.poller != nil {
		c.poller.kick()
	}
}

// DemandChanged asks for a look at what Options.Demand says now.
func (c *Controller) DemandChanged() { c.lookSoon() }

// OnChange has a function called after each snapshot that differs from the one before. It is
// for use before Run; the function must not block.
func (c *Controller) OnChange(f func()) {
	c.listening.Lock()
	defer c.listening.Unlock()
	c.listeners = append(c.listeners, f)
}

// look asks for a sync at once.
func (c *Controller) look() { c.queue.Add(everythingKey) }

// lookSoon asks for a sync that answers all changes of this moment.
func (c *Controller) lookSoon() { c.queue.AddAfter(everythingKey, settleTime) }

// sync brings table, volumes and root volumes to where they should be; repeating it is
// harmless. The table is stored first: whatever names a port must find it there.
func (c *Controller) sync(ctx context.Context, _ string) (again time.Duration, err error) {
	s, err := c.world.observe(ctx, c.findings(), c.demand(), &c.memory)
	if err != nil {
		c.publishTrouble(fmt.Sprintf("the table of file systems, ConfigMap %s, which cannot be read or checked: %v", wellknown.TargetsConfigMap, err))
		return 0, err
	}
	p := c.options.plan(s)
	c.metrics.show(p.numbers)
	if p.held {
		c.tell.tellAll(ctx, s.table.object, nil, p.complaints)
		c.publishTrouble(s.trouble())
		return 0, nil
	}
	stored, err := c.exec.store(ctx, s.table.object, p)
	if err != nil {
		c.memory.live = false // what was read is not to be trusted
		if pairs.IsRace(err) {
			return settleTime, nil
		}
		if ctx.Err() != nil {
			return 0, err
		}
		c.metrics.notStored.Inc()
		return 0, c.serveStored(ctx, s, p, err)
	}
	c.memory.table, c.memory.assigned, c.memory.seen, c.memory.accepted = stored, p.assigned, p.seen, p.accepted
	c.tell.tellAll(ctx, stored, p.news, p.complaints)
	c.ask(p.ask, p.points)
	c.publish(p.snapshot)
	return c.exec.apply(ctx, p)
}

// serveStored goes on with the table that is stored, when the apiserver refuses the one that
// should be. Absences are counted on: when a file system that is gone leaves, the table may fit.
func (c *Controller) serveStored(ctx context.Context, s state, refused plan, err error) error {
	c.memory.assigned.Absences, c.memory.assigned.CountedAt = refused.assigned.Absences, refused.assigned.CountedAt
	complaints := append(slices.Clone(refused.complaints), notStoredComplaint(err))
	c.tell.tellAll(ctx, s.table.object, nil, complaints)
	if s.table.table == nil {
		c.publishTrouble(fmt.Sprintf("the table of file systems, ConfigMap %s, which cannot be written: %v", wellknown.TargetsConfigMap, err))
		return err
	}
	c.ask(refused.ask, refused.points)
	p := c.options.planStored(s)
	c.publish(p.snapshot)
	_, failed := c.exec.apply(ctx, p) // races are met again at the retry
	return multierror.Append(err, failed).ErrorOrNil()
}

func (c *Controller) demand() ports.Demand {
	if c.options.Demand == nil {
		return ports.Demand{}
	}
	return c.options.Demand()
}

func (c *Controller) findings() findings {
	if c.poller == nil {
		return findings{over: true}
	}
	return c.poller.latest()
}

func (c *Controller) ask(ids []string, points []ports.Key) {
	if c.poller == nil {
		return
	}
	if len(ids) > 0 {
		c.poller.ask(ids)
	}
	c.poller.want(points)
}

// publishTrouble has claims say why nothing can be chosen. What was known before stays so.
func (c *Controller) publishTrouble(why string) {
	if !c.Snapshot().Known {
		c.publish(targets.Snapshot{Trouble: why})
	}
}

func (c *Controller) publish(next targets.Snapshot) {
	if reflect.DeepEqual(c.Snapshot(), next) {
		return
	}
	c.snapshot.Store(&next)
	c.listening.Lock()
	defer c.listening.Unlock()
	for _, tell := range c.listeners {
		tell()
	}
}
