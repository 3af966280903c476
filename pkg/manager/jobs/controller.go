// Package jobs is the control loop that has Kubernetes Jobs create and remove
// directories. Its key is a file system: a sync observes the file system's Jobs and
// the operations that the claims loop left pending, plans, and applies the changes
// of the plan. One mount Job at a time carries out all operations that are due;
// those that come meanwhile are for the next one. A Job keeps a finalizer until the
// claims loop has used its outcome.
package jobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/background"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Options say how the loop works.
type Options struct {
	Jobs           mountjobs.Settings
	Batch          int           // operations in one batch of a Job at most
	SweepDelay     time.Duration // that of background.Sweep; 0 is the default
	SurveyInterval time.Duration // that of background.Survey
	Usage          Usage
	// Workers is the channel to those that wait for more operations; nil is one without workers.
	Workers *workers.Channel
	// TaskEnded gets what a sweep or survey of a file system has found wrong, by the type of condition.
	TaskEnded func(fileSystemID, conditionType string, found []status.Condition)
	// Blocked gets what keeps a file system's operations from a Job, by volume.
	Blocked func(fileSystemID string, verdicts map[string]decide.Verdict)
	Events  record.EventRecorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Controller is the loop.
type Controller struct {
	options  Options
	client   kubernetes.Interface
	live     objects.Reader
	gatherer *observe.Gatherer
	events   *events.Reporter
	metrics  *metrics
	queue    *queue.Queue[string]
	// notCreated has the messages of operations for which no Job could be created, by volume.
	notCreated *expiring.Expiring
	notReady   sync.Map             // file systems with an unready root claim, and since when
	refused    *flowcontrol.Backoff // creations of Jobs: events of other claims do not hasten the next one
	paces      paces
	logs       *background.Logs
	reads      sync.WaitGroup // of logs
}

const (
	controlLoop = "jobs"
	parallel    = 8 // file systems worked on at once
	firstRetry  = 100 * time.Millisecond
	maxRefused  = time.Minute
)

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, g *observe.Gatherer, o Options) (*Controller, error) {
	o.SweepDelay, o.Workers = cmp.Or(o.SweepDelay, background.DefaultSweepDelay), cmp.Or(o.Workers, &workers.Channel{})
	c := &Controller{
		options: o, client: client, live: objects.Reader{Client: client}, gatherer: g, events: events.NewReporter(o.Events),
		metrics: newMetrics(o.Metrics), refused: newRefused(), notCreated: expiring.NewExpiring(), logs: &background.Logs{Client: client, Namespace: o.Jobs.Namespace},
	}
	c.queue = queue.New(queue.Options{Name: controlLoop, KeyName: "fileSystem", FirstRetry: firstRetry, Log: o.Log}, c.sync)
	c.options.Log = o.Log.With(slog.String("controller", controlLoop)) // the queue names its loop itself
	g.OnPending = func(id string) { c.queue.AddAfter(id, c.paces.lookDelay(id)) }
	g.OnUnread = func(job, report string) {
		c.options.Log.Warn("report of a Job cannot be read", slog.String("job", job), slog.String("report", report))
	}
	if err := objects.OnChange(c.changed, g.Caches.Claims, g.Caches.Volumes, g.Caches.Jobs, g.Caches.Pods, g.Caches.Warnings); err != nil {
		return nil, fmt.Errorf("watching for mount Jobs: %w", err)
	}
	return c, nil
}

func newRefused() *flowcontrol.Backoff { return flowcontrol.NewBackOff(firstRetry, maxRefused) }

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	defer c.reads.Wait() // the queue has ended their context
	return c.queue.Run(ctx, parallel, c.enqueueAll)
}

func (c *Controller) enqueueAll() {
	for _, id := range c.gatherer.Caches.FileSystems() {
		c.enqueue(id)
	}
	c.TargetsChanged()
}

// TargetsChanged enqueues every file system, also those that are gone: no sweep of them is waited for.
func (c *Controller) TargetsChanged() {
	snapshot := c.gatherer.Targets()
	for id := range snapshot.FileSystems {
		c.enqueue(id)
	}
	for id := range snapshot.Gone {
		c.enqueue(id)
	}
	for _, id := range c.metrics.keepOnly(snapshot.FileSystems) {
		c.enqueue(id)
	}
}

// changed enqueues the file systems whose Jobs or root claim an object is about; for pending operations,
// the claims loop does. A standby enqueues nothing: Run does.
func (c *Controller) changed(before, after any) {
	if !c.queue.Running() {
		return
	}
	switch o := cmp.Or(after, before).(type) {
	case *corev1.PersistentVolumeClaim:
		c.claimChanged(o)
	case *corev1.PersistentVolume:
		c.volumeChanged(o)
	case *batchv1.Job:
		c.enqueueFor(o.Name, enqueueDelay)
	case *corev1.Pod:
		if id := o.Labels[wellknown.LabelMountJobFileSystemID]; id != "" {
			c.enqueue(id)
		}
	case *corev1.Event:
		c.warningChanged(o)
	}
}

func (c *Controller) claimChanged(claim *corev1.PersistentVolumeClaim) {
	if id, ok := strings.CutPrefix(claim.Name, wellknown.RootVolumePrefix); ok && claim.Namespace == c.options.Jobs.Namespace {
		c.enqueue(id)
	}
	if c.gatherer.Caches.Claim(claim.UID) == nil { // Jobs may have been used now
		for _, job := range c.gatherer.Caches.JobsOfVolume(volumes.VolumeName(claim.UID)) {
			c.enqueueFor(job.Name, useLookDelay)
		}
	}
}

func (c *Controller) volumeChanged(object *corev1.PersistentVolume) {
	read := volumes.Read(object, c.gatherer.Provisioner)
	mayBeUsed := object.DeletionTimestamp != nil || len(c.gatherer.Caches.JobsOfVolume(object.Name)) > 0
	switch {
	case read.Kind == volumes.Root:
		c.enqueue(read.FileSystemID)
	case read.Kind != volumes.Foreign && mayBeUsed:
		c.queue.AddAfter(read.FileSystemID, useLookDelay)
	}
}

// warningChanged is about a Job, or about its pod, whose name has five more letters.
func (c *Controller) warningChanged(event *corev1.Event) {
	name := event.InvolvedObject.Name
	if i := strings.LastIndexByte(name, '-'); event.InvolvedObject.Kind == "Pod" && i > 0 {
		name = name[:i]
	}
	c.enqueueFor(name, enqueueDelay)
}

// WorkerWaits enqueues the file system of a Job whose worker begins to wait.
func (c *Controller) WorkerWaits(job *batchv1.Job) { c.enqueueFor(job.Name, enqueueDelay) }

func (c *Controller) enqueueFor(job string, delay time.Duration) {
	if name, ok := mountjobs.ParseName(job); ok {
		c.queue.AddAfter(name.FileSystemID, delay)
	}
}

// enqueueDelay lets changes that come together be one sync. It is short beside the start of a Job.
const enqueueDelay = 20 * time.Millisecond

// useLookDelay lets the volumes of a burst be one look at whether Jobs are used: each looks at all their
// operations, and nobody waits for the finalizer of a Job.
const useLookDelay = 500 * time.Millisecond

func (c *Controller) enqueue(id string) { c.queue.AddAfter(id, enqueueDelay) }

func (c *Controller) sync(ctx context.Context, id string) (again time.Duration, err error) {
	s := c.observe(id)
	p := planFor(s)
	again, err = c.apply(ctx, s, p)
	c.sayBlocked(s, p)
	return again, err
}

type metrics struct {
	known sync.Map // the file systems with a series

	jobs       *prometheus.CounterVec
	operations *prometheus.CounterVec
	batches    prometheus.Histogram
	trash      *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	register := promauto.With(registry)
	m := &metrics{
		jobs: register.NewCounterVec(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_jobs_created_total",
			Help: "Jobs created: mount, clone, sweep or survey.",
		}, []string{"kind"}),
		operations: register.NewCounterVec(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_operations_total",
			Help: "Operations sent to mount Jobs: with a new Job (job), or to the worker of one that waits (worker).",
		}, []string{"way"}),
		batches: register.NewHistogram(prometheus.HistogramOpts{
			Name:    "efs_stunnel_manager_mount_job_operations",
			Help:    "Operations in a batch of a mount Job.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
		}),
		trash: register.NewGaugeVec(prometheus.GaugeOpts{
			Name: "efs_stunnel_manager_trash_directories",
			Help: "Deleted directories in the trash, as counted by the last sweep, or, where they are many, by one of the last hour.",
		}, []string{"file_system"}),
	}
	m.jobs.WithLabelValues("mount") // Prometheus does not count what a series begins with
	m.operations.WithLabelValues("job")
	m.operations.WithLabelValues("worker")
	return m
}

func (m *metrics) created(kind mountjobs.Kind) {
	labels := map[mountjobs.Kind]string{mountjobs.Mount: "mount", mountjobs.Clone: "clone", mountjobs.Sweep: "sweep", mountjobs.Survey: "survey"}
	m.jobs.WithLabelValues(labels[kind]).Inc()
}

func (m *metrics) sent(way string, operations int) {
	m.operations.WithLabelValues(way).Add(float64(operations))
	m.batches.Observe(float64(operations))
}

// swept has one series for each file system, of which a cluster has tens.
func (m *metrics) swept(fileSystemID string, s operations.Swept) {
	m.known.Store(fileSystemID, nil)
	m.trash.WithLabelValues(fileSystemID).Set(float64(s.Kept))
}

// keepOnly drops the series of file systems that have left the table, and returns those.
func (m *metrics) keepOnly(table map[string]volumes.Candidate) (dropped []string) {
	for key := range m.known.Range {
		id, _ := key.(string)
		if _, ok := table[id]; !ok {
			m.known.Delete(id)
			m.trash.DeleteLabelValues(id)
			dropped = append(dropped, id)
		}
	}
	return dropped
}
