// Package table turns file systems into the port table, root volumes and root claims, and
// corrects the ports of volumes that disagree with the table. It consists of small loops, each of
// which observes, plans and applies on its own:
//
//	loop   observes                                    writes
//	polls  what the table's plan asks the EFS API      the inventory
//	table  inventory, ConfigMaps, volumes, demand      ConfigMap, Snapshot, decision
//	roots  decision, root volumes and claims, Jobs     root volumes and root claims
//	view   ConfigMap                                   its view, for node agents
//	ports  decision, volumes                           ports of volumes
//	objects  conditions, table, Snapshot               FileSystem objects and the Installation
//
// The polls have a queue of their own, so that a call that hangs delays no other loop. What should
// be is decided by ports.Assign and volumes.RootPair.
package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/queue"
)

// Options configure the loops.
type Options struct {
	Namespace       string        // the manager's: of the ConfigMaps, root claims and mount Jobs
	Provisioner     string        // in the annotations of this installation's volumes
	PollingInterval time.Duration // between two polls; wellknown.PollingJitter of it is added at random
	Range           ports.Range   // where new ports come from
	Filter          efs.Filter    // the file systems that the cluster may use; pinned ones always pass
	VPCID           string        // where the nodes are; "" when unknown
	// Demand is the access points in use and the tunnels that must present an IAM identity. Access points get ports
	// when EFS has confirmed them.
	Demand func() ports.Demand
	// Made is the same for access points that the manager has created, and whose volumes do not exist yet.
	Made      func() ports.Demand
	DNSSuffix string            // follows a file system's id in its certificate, as efs.us-east-1.amazonaws.com
	Dynamic   dynamic.Interface // writes FileSystem objects and the Installation; nil leaves them alone
	Leader    string            // the name of this replica
	// ClockWrong returns what is wrong with this machine's clock, "" for nothing; nil if that is not known.
	ClockWrong func() string
	Now        func() time.Time // the apiserver's time, which is written into the table

	Log     *slog.Logger
	Events  record.EventRecorder
	Metrics prometheus.Registerer
}

// API is the part of EFS that discovery reads. Every call should end in bounded time.
type API interface {
	ListFileSystems(ctx context.Context) (efs.Listing, error)
	// FileSystemExists answers false only when EFS says that there is no such file system.
	FileSystemExists(ctx context.Context, id string) (bool, error)
	// ListAccessPoints lists all of a file system.
	ListAccessPoints(ctx context.Context, fileSystemID string) ([]efs.AccessPoint, error)
	// FindAccessPoint finds none only when EFS says that there is none.
	FindAccessPoint(ctx context.Context, id string) (point efs.AccessPoint, found bool, err error)
}

// Times of the loops.
const (
	settleTime   = 200 * time.Millisecond // many changes come at once; one sync is enough for them
	calmTime     = 5 * time.Second        // of changes for which nobody waits: a plan reads every volume
	firstRetry   = 500 * time.Millisecond
	maxRetry     = time.Minute
	drainTimeout = 20 * time.Second
	controlLoop  = "discovery"
)

// Keys of the queue, one for each loop.
const (
	tableKey   = "table"
	rootsKey   = "roots"
	portsKey   = "ports"
	viewKey    = "view"
	objectsKey = "objects"
)

// Controller is discovery in one cluster.
type Controller struct {
	options Options
	client  kubernetes.Interface
	caches  *caches.Caches
	poller  *poller // nil without an API
	queue   *queue.Queue[string]
	metrics *metrics

	table       tableMemory
	tableEvents reporter
	rootEvents  reporter
	objects     objectsMemory
	tasks       sync.Map                         // of taskType to []status.Condition
	shown       atomic.Pointer[plan]             // of the table in force; nil before there was one
	decision    atomic.Pointer[decision]         // nil while root volumes and ports are left alone
	snapshot    atomic.Pointer[targets.Snapshot] // nil before the first

	listeners []func() // complete before Run
}

// New makes the loops and has the caches enqueue their keys; it starts nothing. Without an API,
// pinned targets are the only ones. An error says which option is wrong.
func New(client kubernetes.Interface, c *caches.Caches, api API, o Options) (*Controller, error) {
	if o.Namespace == "" || o.PollingInterval <= 0 {
		return nil, fmt.Errorf("making the discovery loop: namespace %q, polling interval %s: want a name, and a time above 0", o.Namespace, o.PollingInterval)
	}
	if err := o.Range.Check(); err != nil {
		return nil, fmt.Errorf("making the discovery loop: %w", err)
	}
	log := o.Log // the queues name their loops themselves
	o.Log = o.Log.With("controller", controlLoop)
	d := &Controller{options: o, client: client, caches: c, metrics: newMetrics(o.Metrics)}
	d.tableEvents.Options, d.rootEvents.Options = o, o
	syncs := map[string]queue.SyncFunc[string]{tableKey: d.syncTable, rootsKey: d.syncRoots, portsKey: d.syncPorts, viewKey: d.syncView, objectsKey: d.syncObjects}
	d.queue = queue.New(queue.Options{
		Name: controlLoop, KeyName: "loop",
		FirstRetry: firstRetry, MaxRetry: maxRetry, DrainTimeout: drainTimeout, Log: log,
	}, func(ctx context.Context, key string) (time.Duration, error) { return syncs[key](ctx, key) })
	if api != nil {
		d.metrics.interval = o.PollingInterval
		d.poller = newPoller(api, o, d.metrics.failures.Inc, func() { d.queue.Add(tableKey) })
	}
	return d, d.watch()
}

// Run polls and syncs until the context ends and the running syncs are done. Only the leader may
// run it, and only once.
func (c *Controller) Run(ctx context.Context) error {
	var polling sync.WaitGroup
	if c.poller != nil {
		polling.Go(func() { c.poller.run(ctx) })
	}
	err := c.queue.Run(ctx, 5, func() { // one worker for each key
		c.queue.Add(tableKey)
		c.queue.Add(viewKey)
	})
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

// Kick has the EFS API polled soon, at most once in 10 s.
func (c *Controller) Kick() {
	if c.poller != nil {
		c.poller.kick()
	}
}

// DemandChanged enqueues the table, because Options.Demand has changed.
func (c *Controller) DemandChanged() { c.queue.AddAfter(tableKey, settleTime) }

// OnChange has a function called after each snapshot that differs from the one before. It is to be
// called before Run; the function must not block.
func (c *Controller) OnChange(f func()) { c.listeners = append(c.listeners, f) }

// publish hands what follows from a stored table to the other loops.
func (c *Controller) publish(p plan, stored *corev1.ConfigMap) {
	if c.poller != nil {
		c.poller.ask(p.missing, p.points)
	}
	c.publishSnapshot(p.snapshot)
	p.decision.table = stored
	c.shown.Store(&p)
	c.queue.AddAfter(objectsKey, settleTime)
	c.decision.Store(p.decision)
	c.queue.Add(rootsKey)
	if len(p.decision.corrections) > 0 {
		c.queue.Add(portsKey)
	}
}

// hold leaves root volumes and ports alone. Claims report the problem, if nothing was known before.
func (c *Controller) hold(problem string) {
	c.decision.Store(nil)
	if !c.Snapshot().Known {
		c.publishSnapshot(targets.Snapshot{Problem: problem})
	}
}

func (c *Controller) publishSnapshot(next targets.Snapshot) {
	if reflect.DeepEqual(c.Snapshot(), next) {
		return
	}
	c.snapshot.Store(&next)
	for _, changed := range c.listeners {
		changed()
	}
}

// applyEach makes independent changes while the decision that they follow is in force: the next one
// enqueues its key. The failure of one leaves the others alone; after a lost race, the key is synced again.
func applyEach[T any](c *Controller, d *decision, changes []T, apply func(T) error) (again time.Duration, err error) {
	for _, change := range changes {
		if c.inForce() != d {
			break
		}
		switch failure := apply(change); {
		case objects.IsRace(failure):
			again = settleTime
		case failure != nil:
			err = logging.Errors(err, failure)
		}
	}
	return again, err
}

// watch has the caches enqueue keys. The ports loop observes no changes of its own: the table loop
// enqueues it.
func (c *Controller) watch() error {
	table := func() { c.queue.Add(tableKey) }
	tableSoon := func() { c.queue.AddAfter(tableKey, settleTime) }
	tableLater := func() { c.queue.AddAfter(tableKey, calmTime) }
	rootsSoon := func() { c.queue.AddAfter(rootsKey, settleTime) }
	if err := errors.Join(
		onChange(c.caches.Table, anyChange[*corev1.ConfigMap], table),
		onChange(c.caches.Table, anyChange[*corev1.ConfigMap], func() { c.queue.Add(viewKey) }),
		onChange(c.caches.Pinned, anyChange[*corev1.ConfigMap], table),
		onChange(c.caches.Volumes, volumeMatters, tableLater),
		onChange(c.caches.Volumes, c.volumeIsUrgent, tableSoon),
		onChange(c.caches.Claims, c.claimMatters, rootsSoon),
		onChange(c.caches.Jobs, jobMatters, rootsSoon),
	); err != nil {
		return fmt.Errorf("watching for discovery: %w", err)
	}
	if c.caches.Services == nil {
		return nil
	}
	return errors.Join(
		onChange(c.caches.Services, anyChange[*corev1.Service], table),
		onChange(c.caches.Pods, isServerPod, tableSoon),
		onChange(c.caches.Warnings, c.isOfServerPod, tableSoon))
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

// volumeIsUrgent is false for volumes that come with the port that the table has for them, and for those
// that go: in a burst of claims these come by the hundred a second, and at most a port may be retired.
func (c *Controller) volumeIsUrgent(before, after *corev1.PersistentVolume) bool {
	if !volumeMatters(before, after) {
		return false
	}
	volume := portsOf(cmp.Or(after, before))
	if before != nil && after != nil || volume.Root || strings.HasPrefix(volume.Name, wellknown.RootVolumePrefix) {
		return true
	}
	return after != nil && (!c.isAsPlanned(volume) || harmfulOption(after) != "")
}

func (c *Controller) isAsPlanned(volume ports.Volume) bool {
	shown := c.shown.Load()
	if shown == nil {
		return false
	}
	port, ok := shown.table.Port(volume.On)
	return ok && port == volume.Port
}

func portsOf(volume *corev1.PersistentVolume) ports.Volume {
	if volume == nil {
		return ports.Volume{}
	}
	return ports.VolumeOf(volume)
}

// claimMatters is true for root claims only.
func (c *Controller) claimMatters(before, after *corev1.PersistentVolumeClaim) bool {
	claim := cmp.Or(after, before)
	return claim.Namespace == c.options.Namespace && strings.HasPrefix(claim.Name, wellknown.RootVolumePrefix)
}

// jobMatters is true for a Job that may be deleted from now on, so that its pods no longer protect a
// root claim.
func jobMatters(before, after *batchv1.Job) bool {
	return deletable(after) != "" && deletable(before) == ""
}
