// Package jobs is the control loop that has Kubernetes Jobs make and remove
// directories. Its key is a file system: there, one mount Job at a time carries
// out every operation that waits, and what arrives meanwhile rides in the next.
//
// Which operations wait, the claims loop decides, which also uses the outcomes. A
// Job keeps a finalizer until everything that should follow from it has.
package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/controller/gatherer"
	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Options say how the loop works.
type Options struct {
	// Jobs are what an administrator chose for every Job.
	Jobs mountjobs.Settings
	// Batch is how many operations one Job carries at most.
	Batch int
	// Aliases are, for a file system, the ids whose marker and ledger it may carry.
	Aliases map[string][]string
	// SweepDelay is how long trash waits for more; 0 is the default.
	SweepDelay time.Duration
	Events     record.EventRecorder
	Metrics    prometheus.Registerer
	Log        *slog.Logger
}

// Controller is the loop.
type Controller struct {
	options  Options
	client   kubernetes.Interface
	live     kubeobjects.Reader
	gatherer *gatherer.Gatherer
	tell     *tell.Teller
	metrics  *metrics
	queue    *queue.Queue[string]
}

const (
	controlLoop  = "jobs"
	workers      = 8 // file systems worked on at once
	firstRetry   = 100 * time.Millisecond
	maxRetry     = time.Minute
	drainTimeout = 15 * time.Second
)

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, v *gatherer.Gatherer, o Options) (*Controller, error) {
	log := o.Log // the queue names its loop itself
	o.Log = o.Log.With(slog.String("controller", controlLoop))
	o.SweepDelay = cmp.Or(o.SweepDelay, defaultSweepDelay)
	c := &Controller{
		options:  o,
		client:   client,
		live:     kubeobjects.Reader{Client: client},
		gatherer: v,
		tell:     tell.New(o.Events),
	}
	var err error
	if c.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, err
	}
	c.queue = queue.New(queue.Options{
		Name: controlLoop, KeyName: "fileSystem",
		FirstRetry: firstRetry, MaxRetry: maxRetry, DrainTimeout: drainTimeout,
		Log: log,
	}, c.sync)
	v.OnPending = c.enqueue
	return c, c.watch()
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.queue.Run(ctx, workers, c.enqueueAll); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	return nil
}

// enqueueAll adds every file system for which something may wait, from what the caches have.
func (c *Controller) enqueueAll() {
	for _, id := range c.gatherer.Caches.FileSystems() {
		c.enqueue(id)
	}
	c.TargetsChanged()
}

// TargetsChanged enqueues every file system.
func (c *Controller) TargetsChanged() {
	snapshot := c.gatherer.Targets()
	for id := range snapshot.FileSystems {
		c.enqueue(id)
	}
	for id := range snapshot.Gone {
		c.enqueue(id) // what waits for its trash waits for nothing
	}
	for _, id := range c.metrics.fileSystems() {
		c.enqueue(id) // it may have left the table
	}
}

func (c *Controller) watch() error {
	caches := c.gatherer.Caches
	var errs []error
	for _, informer := range []cache.SharedIndexInformer{caches.Claims, caches.Volumes, caches.Jobs, caches.Pods, caches.Warnings} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    c.changed,
			UpdateFunc: func(_, after any) { c.changed(after) },
			DeleteFunc: c.changed,
		})
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("watching for mount Jobs: %w", err)
	}
	return nil
}

// changed finds the file systems whose Jobs or root claim an object is about. Which operations wait
// there, the gatherer indexes. A standby enqueues nothing: Run finds all keys.
func (c *Controller) changed(object any) {
	if !c.queue.Running() {
		return
	}
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		c.claimChanged(o)
	case *corev1.PersistentVolume:
		c.volumeChanged(o)
	case *batchv1.Job:
		c.addJob(o.Name)
	case *corev1.Pod:
		if id := o.Labels[wellknown.LabelMountJobFileSystemID]; id != "" {
			c.enqueue(id)
		}
	case *corev1.Event:
		c.addEvent(o)
	}
}

func (c *Controller) claimChanged(claim *corev1.PersistentVolumeClaim) {
	if id, ok := strings.CutPrefix(claim.Name, wellknown.RootVolumePrefix); ok && claim.Namespace == c.options.Jobs.Namespace {
		c.enqueue(id)
	}
	if c.gatherer.Caches.Claim(claim.UID) == nil {
		c.enqueueJobsOf(volumes.VolumeName(claim.UID))
	}
}

// enqueueJobsOf adds the file systems of Jobs that may be used up now that a claim is gone.
func (c *Controller) enqueueJobsOf(volume string) {
	for _, job := range c.gatherer.Caches.JobsOfVolume(volume) {
		if slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) {
			c.addJob(job.Name)
		}
	}
}

func (c *Controller) volumeChanged(object *corev1.PersistentVolume) {
	read := volumes.Read(object, c.gatherer.Provisioner)
	if read.Kind == volumes.Foreign {
		return
	}
	if read.Kind == volumes.Root || object.DeletionTimestamp != nil {
		c.enqueue(read.FileSystemID) // a Job may be used up now
	}
	if len(c.gatherer.Caches.JobsOfVolume(object.Name)) > 0 {
		c.enqueue(read.FileSystemID)
	}
}

func (c *Controller) addJob(job string) {
	if name, ok := mountjobs.ParseName(job); ok {
		c.enqueue(name.FileSystemID)
	}
}

// addEvent reads the name of a Job, or that of its pod, which has five more letters.
func (c *Controller) addEvent(event *corev1.Event) {
	name := event.InvolvedObject.Name
	if event.InvolvedObject.Kind == "Pod" {
		if i := strings.LastIndexByte(name, '-'); i > 0 {
			name = name[:i]
		}
	}
	c.addJob(name)
}

// enqueueDelay lets what happens together be one sync. A lone claim hardly notices.
const enqueueDelay = 20 * time.Millisecond

// look enqueues a file system, for soon.
func (c *Controller) enqueue(id string) { c.queue.AddAfter(id, enqueueDelay) }

// sync observes one file system and does what is to be done.
func (c *Controller) sync(ctx context.Context, id string) (again time.Duration, err error) {
	w := c.observe(id)
	if _, known := c.gatherer.Targets().FileSystems[id]; !known {
		c.metrics.forget(id)
	}
	return c.apply(ctx, w, decide(w))
}
