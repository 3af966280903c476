// Package claims is the control loop that turns claims into volumes and ends
// volumes that are no longer needed. Its key is a claim's uid, for both, so
// that the two never overtake each other.
//
// What is to be done is decided in package lifecycle; directories are made and
// removed by the mount Jobs of package jobs, whose outcomes this loop reads.
package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	expiring "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/controller/gatherer"
	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/lifecycle"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Options say how the loop works.
type Options struct {
	// Rediscover has discovery look for new file systems soon.
	Rediscover func()
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
	queue    *queue.Queue[types.UID]
	// decisions has the same keys. Its syncs never wait for the network, so that an operation is
	// known to the jobs loop while others are written.
	decisions *queue.Queue[types.UID]
	// ended are volumes that were deleted a moment ago, so that nothing is written twice.
	ended *expiring.Expiring
	// snapshots are what was read live after a large mount Job; reading lets one read them at once.
	// made are the volumes that may be newer than a snapshot.
	snapshots *expiring.Expiring
	made      *expiring.Expiring
	reading   singleflight.Group
}

const (
	controlLoop  = "claims"
	workers      = 32 // each waits for the apiserver most of the time
	deciders     = 2
	firstRetry   = 50 * time.Millisecond
	maxRetry     = time.Minute
	drainTimeout = 15 * time.Second
)

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, v *gatherer.Gatherer, o Options) (*Controller, error) {
	log := o.Log // the queue names its loop itself
	o.Log = o.Log.With(slog.String("controller", controlLoop))
	c := &Controller{
		options:  o,
		client:   client,
		live:     kubeobjects.Reader{Client: client},
		gatherer: v,
		tell:     tell.New(o.Events),
		ended:    expiring.NewExpiring(),

		snapshots: expiring.NewExpiring(),
		made:      expiring.NewExpiring(),
	}
	var err error
	if c.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, err
	}
	options := queue.Options{
		Name: controlLoop, KeyName: "claim",
		FirstRetry: firstRetry, MaxRetry: maxRetry, DrainTimeout: drainTimeout,
		Log: log,
	}
	c.queue = queue.New(options, c.sync)
	options.Name = "decisions"
	c.decisions = queue.New(options, c.decide)
	return c, c.watch()
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return c.decisions.Run(ctx, deciders, func() { // both take keys when all are enqueued
			group.Go(func() error { return c.queue.Run(ctx, workers, c.enqueueAll) })
		})
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	return nil
}

func (c *Controller) watch() error {
	caches := c.gatherer.Caches
	var errs []error
	on := func(informer cache.SharedIndexInformer, changed func(before, after any)) {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { changed(nil, object) },
			UpdateFunc: changed,
			DeleteFunc: func(object any) {
				if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = gone.Obj
				}
				changed(object, nil)
			},
		})
		errs = append(errs, err)
	}
	on(caches.Claims, c.objectChanged)
	on(caches.Volumes, c.objectChanged)
	on(caches.Classes, c.objectChanged)
	on(caches.Jobs, c.objectChanged)
	on(caches.Pods, c.podChanged)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("watching for claims: %w", err)
	}
	return nil
}

// enqueueAll adds every claim that the caches know: claims themselves, those that volumes are for,
// and those that are gone and for which Jobs have begun something.
func (c *Controller) enqueueAll() {
	caches := c.gatherer.Caches
	for _, informer := range []cache.SharedIndexInformer{caches.Claims, caches.Volumes, caches.Jobs} {
		for _, object := range informer.GetStore().List() {
			c.objectChanged(nil, object)
		}
	}
}

// objectChanged asks for a look at the claims that an object is about, as it was and as it is. A
// standby does not: Run adds them all.
func (c *Controller) objectChanged(before, after any) {
	if !c.queue.Running() {
		return
	}
	for _, object := range []any{before, after} {
		for _, uid := range c.claimsOf(object) {
			c.enqueue(uid)
		}
	}
}

func (c *Controller) enqueue(uid types.UID) {
	c.decisions.Add(uid)
	c.queue.Add(uid)
}

func (c *Controller) claimsOf(object any) []types.UID {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return []types.UID{o.UID}
	case *corev1.PersistentVolume:
		return volumes.ClaimsOf(o)
	case *storagev1.StorageClass:
		return c.unboundOf(o.Name)
	case *batchv1.Job:
		return claimsOfJob(o)
	}
	return nil
}

func (c *Controller) unboundOf(class string) []types.UID {
	var uids []types.UID
	for _, claim := range c.gatherer.Caches.UnboundClaims(c.gatherer.Provisioner) {
		if class == "" || volumes.ClassName(claim) == class {
			uids = append(uids, claim.UID)
		}
	}
	return uids
}

// claimsOfJob is empty for a Job that is used up, or cannot be read.
func claimsOfJob(job *batchv1.Job) []types.UID {
	if name, ok := mountjobs.ParseName(job.Name); !ok || name.Kind != mountjobs.Mount {
		return nil
	}
	operations, err := mountjobs.Operations(job)
	if err != nil {
		return nil
	}
	var uids []types.UID
	for _, o := range operations {
		if o.ClaimUID != "" {
			uids = append(uids, types.UID(o.ClaimUID))
		}
	}
	return uids
}

// podChanged is about the end of a mount Job's pod; what comes before is of no use here.
func (c *Controller) podChanged(_, after any) {
	pod, ok := after.(*corev1.Pod)
	if !ok || !hasEnded(pod) {
		return
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "Job" {
		return
	}
	if job := c.gatherer.Caches.JobNamed(pod.Namespace, owner.Name); job != nil && job.UID == owner.UID {
		c.objectChanged(nil, job)
	}
}

func hasEnded(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == mountjobs.ContainerName && status.State.Terminated != nil {
			return true
		}
	}
	return false
}

// TargetsChanged asks for a look at everything that the file systems decide. What was begun for a
// claim that is gone is known to Jobs only.
func (c *Controller) TargetsChanged() {
	for _, uid := range c.unboundOf("") {
		c.enqueue(uid)
	}
	for _, job := range c.gatherer.Caches.Jobs.GetStore().List() {
		if isUnused(job) {
			c.objectChanged(nil, job)
		}
	}
	snapshot := c.gatherer.Targets()
	for id := range snapshot.Gone {
		c.lookAtVolumesOf(id)
	}
	for id := range snapshot.FileSystems {
		for _, object := range c.gatherer.Caches.UnsettledVolumes(id) {
			c.objectChanged(nil, object)
		}
	}
}

// isUnused says that something should still follow from a Job.
func isUnused(object any) bool {
	job, ok := object.(*batchv1.Job)
	return ok && slices.Contains(job.Finalizers, wellknown.FinalizerOutcome)
}

func (c *Controller) lookAtVolumesOf(fileSystemID string) {
	for _, object := range c.gatherer.Caches.VolumesOnFileSystem(fileSystemID) {
		c.objectChanged(nil, object)
	}
}

// sync looks at one claim and does what is to be done.
func (c *Controller) sync(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	state, plan := c.decideAbout(uid)
	err = c.apply(ctx, state, plan)
	if errors.Is(err, errBehind) {
		return catchUp, nil
	}
	return untilNext(state.Now, plan), err
}

// catchUp is how long a cache may be behind, most of the time.
const catchUp = 100 * time.Millisecond

// decide has the jobs loop know which operations a claim waits for.
func (c *Controller) decide(_ context.Context, uid types.UID) (again time.Duration, err error) {
	c.decideAbout(uid)
	return 0, nil
}

func (c *Controller) decideAbout(uid types.UID) (lifecycle.State, lifecycle.Plan) {
	state, plan := c.gatherer.Decide(uid)
	for _, wanted := range plan.Operations() {
		c.gatherer.OnPending(wanted.FileSystemID)
	}
	return state, plan
}

// recheck is how long a decision stands that may change without an event about the claim: it waits
// for other claims' volumes, or for a time that the apiserver's clock tells.
const recheck = time.Minute

// untilNext is when a mount Job that should end by itself must have, or when to decide again; 0 waits
// for an event.
func untilNext(now time.Time, plan lifecycle.Plan) time.Duration {
	running, unsettled := plan.Claim.Running, plan.Claim.IsUnsettled()
	for _, v := range plan.Volumes {
		if !v.Running.IsZero() && (running.IsZero() || v.Running.Before(running)) {
			running = v.Running
		}
		unsettled = unsettled || v.IsUnsettled()
	}
	switch {
	case !running.IsZero():
		return max(running.Sub(now), 0) + time.Second
	case unsettled:
		return recheck
	}
	return 0
}
