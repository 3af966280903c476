// Package claims is the control loop that creates a volume for each claim and
// deletes volumes that are released. Its key is a claim's uid, for both, so that
// the two never overtake each other. A sync gathers the claim's state from the
// caches, asks package decide, and applies the changes of the plan; the
// operations that the plan leaves pending are carried out by the jobs loop.
package claims

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Options are the settings and the clients of the loop.
type Options struct {
	Rediscover func() // has discovery list the file systems soon
	// Points makes access points; nil where no class may have them.
	Points interface {
		Create(point volumes.Point)
		Delete(point volumes.Point, id string)
	}
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
	metrics  metrics
	// decisions has the claims that something has happened to. Its syncs never wait for the network, so
	// that an operation is indexed for the jobs loop while changes of other claims are applied.
	decisions *queue.Queue[types.UID]
	queue     *queue.Queue[types.UID] // those whose plans have changes; most events need none
	// verdicts has the claims of which is to be written only why they wait. Thousands wait at once when their file
	// system goes or their class is refused, and claims that can be served do not wait behind them.
	verdicts *queue.Queue[types.UID]
	deleted  *expiring.Expiring // volumes that were deleted a moment ago, so that nothing is written twice
	// snapshots are what was read live after large mount Jobs, by Job. created are volumes that may be newer.
	snapshots *expiring.Expiring
	created   *expiring.Expiring
	marks     marks // of Jobs that were used

	conditions conditions
	reading    singleflight.Group
}

const (
	controlLoop = "claims"
	workers     = 32 // each waits for the apiserver most of the time
	writers     = 4  // of verdicts; beside the workers, they have this share of the manager's requests
	deciders    = 2
	firstRetry  = 50 * time.Millisecond
)

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, g *observe.Gatherer, o Options) (*Controller, error) {
	c := &Controller{
		options: o, client: client, live: objects.Reader{Client: client}, gatherer: g, events: events.NewReporter(o.Events),
		metrics: newMetrics(o.Metrics), deleted: expiring.NewExpiring(), snapshots: expiring.NewExpiring(), created: expiring.NewExpiring(),
		conditions: newConditions(),
	}
	c.marks.client, c.marks.waiting = client, map[types.UID]*marksOfJob{}
	options := queue.Options{Name: controlLoop, KeyName: "claim", FirstRetry: firstRetry, Log: o.Log}
	c.queue = queue.New(options, c.sync)
	options.Name = "decisions"
	c.decisions = queue.New(options, c.decide)
	options.Name = "conditions"
	c.verdicts = queue.New(options, c.syncVerdict)
	c.options.Log = o.Log.With(slog.String("controller", controlLoop)) // the queues name their loops themselves
	if err := errors.Join(
		objects.OnChange(c.objectChanged, g.Caches.Claims, g.Caches.Volumes, g.Caches.Classes, g.Caches.Jobs),
		objects.OnChange(c.podChanged, g.Caches.Pods),
	); err != nil {
		return nil, fmt.Errorf("watching for claims: %w", err)
	}
	return c, nil
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { // queues take keys when the first decision is made
		return c.verdicts.Run(ctx, writers, func() {
			group.Go(func() error {
				return c.queue.Run(ctx, workers, func() {
					group.Go(func() error { return c.decisions.Run(ctx, deciders, c.enqueueAll) })
				})
			})
		})
	})
	return group.Wait()
}

// enqueueAll adds every claim of the caches: claims themselves, those that volumes are for, and those
// that are deleted and for which Jobs have begun something.
func (c *Controller) enqueueAll() {
	caches := c.gatherer.Caches
	for _, informer := range []cache.SharedIndexInformer{caches.Claims, caches.Volumes, caches.Jobs} {
		for _, object := range informer.GetStore().List() {
			c.objectChanged(nil, object)
		}
	}
}

// objectChanged enqueues the claims that an object was and is about. A standby enqueues nothing: Run does.
func (c *Controller) objectChanged(before, after any) {
	if !c.decisions.Running() {
		return
	}
	uids, ok := newBatches(before, after)
	if !ok {
		uids = slices.Concat(c.claimsOf(before), c.claimsOf(after))
	}
	c.enqueue(uids...)
}

// newBatches returns the claims of the batches that a Job's worker was given in a change of the Job. ok is
// false for any other change. One by one, the claims of the first batch would be enqueued for each later one.
func newBatches(before, after any) (uids []types.UID, ok bool) {
	was, wasJob := before.(*batchv1.Job)
	is, isJob := after.(*batchv1.Job)
	if !wasJob || !isJob || mountjobs.NewestBatch(was) == mountjobs.NewestBatch(is) {
		return nil, false
	}
	return claimsOfJob(is, func(number int) bool { return number > mountjobs.NewestBatch(was) }), true
}

// enqueue adds each claim once: one that is added again is decided again when a decider is quick.
func (c *Controller) enqueue(uids ...types.UID) {
	for _, uid := range slices.Compact(slices.Sorted(slices.Values(uids))) {
		c.decisions.Add(uid)
	}
}

func (c *Controller) claimsOf(object any) []types.UID {
	switch o := object.(type) {
	case *corev1.PersistentVolumeClaim:
		uids := []types.UID{o.UID}
		for _, claim := range c.gatherer.Caches.CopiesOf(o) {
			uids = append(uids, claim.UID)
		}
		return uids
	case *corev1.PersistentVolume:
		return volumes.ClaimsOf(o)
	case *storagev1.StorageClass:
		return c.unboundOf(o.Name)
	case *batchv1.Job:
		return claimsOfJob(o, nil)
	}
	return nil
}

// BatchReported enqueues the claims of a batch whose worker has reported it.
func (c *Controller) BatchReported(job *batchv1.Job, batch int) {
	c.enqueue(claimsOfJob(job, func(number int) bool { return number == batch })...)
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

// claimsOfJob returns the claims of the wanted batches of a Job, none for a Job that was used, or that cannot be read.
func claimsOfJob(job *batchv1.Job, wanted func(batch int) bool) []types.UID {
	if name, ok := mountjobs.ParseName(job.Name); !ok || !name.Kind.HasOperations() {
		return nil
	}
	ops, _ := mountjobs.Operations(job, wanted) // the jobs loop reports the error
	var uids []types.UID
	for _, o := range ops {
		if o.ClaimUID != "" {
			uids = append(uids, types.UID(o.ClaimUID))
		}
	}
	return uids
}

// podChanged handles the end of a mount Job's pod; no earlier change of the pod matters to a claim.
func (c *Controller) podChanged(_, after any) {
	pod, ok := after.(*corev1.Pod)
	if !ok || !mountjobs.IsPodOver(pod) {
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

// TargetsChanged enqueues the claims whose plans depend on the file systems. What was begun for a
// claim that is deleted is known from Jobs only.
func (c *Controller) TargetsChanged() {
	uids := c.unboundOf("")
	for _, object := range c.gatherer.Caches.Jobs.GetStore().List() {
		if job, ok := object.(*batchv1.Job); ok && mountjobs.IsUnreleased(job) {
			uids = append(uids, c.claimsOf(job)...)
		}
	}
	var affected []*corev1.PersistentVolume
	snapshot := c.gatherer.Targets()
	for id := range snapshot.Gone {
		affected = append(affected, c.gatherer.Caches.VolumesOnFileSystem(id)...)
	}
	for id := range snapshot.FileSystems {
		affected = append(affected, c.gatherer.Caches.UnsettledVolumes(id)...)
	}
	for _, volume := range affected {
		uids = append(uids, c.claimsOf(volume)...)
	}
	c.enqueue(uids...)
}

// PointChanged enqueues the claims of a volume whose access point has changed; "" is any.
func (c *Controller) PointChanged(volume string) {
	uid, isClaims := volumes.ClaimOfName(volume)
	switch object := c.gatherer.Caches.Volume(volume); {
	case volume == "":
		c.TargetsChanged()
		for _, bound := range caches.All[*corev1.PersistentVolume](c.gatherer.Caches.Volumes) {
			if bound.Annotations[wellknown.AnnotationAccessPointID] != "" {
				c.enqueue(volumes.ClaimsOf(bound)...)
			}
		}
	case object != nil:
		c.enqueue(volumes.ClaimsOf(object)...)
	case isClaims:
		c.enqueue(uid)
	}
}

// sync plans for one claim, of which more may be known since the decision, and applies the plan.
func (c *Controller) sync(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	state, plan := c.gatherer.Decide(uid)
	err = c.apply(ctx, state, plan)
	if errors.Is(err, errBehind) {
		return catchUp, nil
	}
	again = c.followVerdict(state, plan)
	if err != nil && again > 0 {
		c.decisions.AddAfter(uid, again) // a terminal error ends the retries
	}
	return soonest(again, untilNext(state.Now, plan)), err
}

// followVerdict enqueues the claim if its condition is not as it is to be, or returns when it will not be.
func (c *Controller) followVerdict(s decide.State, plan decide.Plan) (again time.Duration) {
	verdict, again := c.conditions.next(s, plan, time.Now())
	if s.Claim != nil && verdict != decide.VerdictOn(s.Claim) {
		c.verdicts.Add(s.UID)
	}
	return again
}

// syncVerdict writes why a claim waits, and the annotations of one that is refused.
func (c *Controller) syncVerdict(ctx context.Context, uid types.UID) (again time.Duration, err error) {
	state, plan := c.gatherer.Decide(uid)
	if onlyRefuses(plan) {
		err = c.apply(ctx, state, plan)
	}
	verdict, again := c.conditions.next(state, plan, time.Now())
	return again, logging.Errors(err, c.writeCondition(ctx, state, verdict))
}

// onlyRefuses reports whether a plan has nothing but what is said of a claim that is refused.
func onlyRefuses(plan decide.Plan) bool {
	does := func(change decide.Change) bool {
		switch change.(type) {
		case decide.Warn, decide.Annotate:
			return false
		}
		return true
	}
	isRefused := plan.Verdict.Cause == status.ClaimRejected || plan.Verdict.Cause == status.ClassRefused
	return isRefused && !slices.ContainsFunc(plan.Changes, does)
}

// catchUp is the delay of a decision that found a cache behind: most have caught up by then.
const catchUp = 100 * time.Millisecond

// decide indexes the operations that a claim waits for, and enqueues the claim if there is something to write.
func (c *Controller) decide(_ context.Context, uid types.UID) (again time.Duration, err error) {
	state, plan := c.gatherer.Decide(uid)
	switch {
	case len(plan.Changes) == 0:
		return soonest(c.followVerdict(state, plan), untilNext(state.Now, plan)), nil
	case onlyRefuses(plan):
		c.verdicts.Add(uid)
		return untilNext(state.Now, plan), nil // it may be accepted by then
	}
	c.queue.Add(uid)
	return 0, nil
}

// soonest returns the shorter of two waits; 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// recheck is the time after which an unsettled decision is made again: it waits for other claims' volumes, or for
// a time by the apiserver's clock.
const recheck = time.Minute

// untilNext returns the time until a mount Job must have ended, or until the next decision; 0 waits for an event.
func untilNext(now time.Time, plan decide.Plan) time.Duration {
	switch {
	case !plan.RunningUntil.IsZero():
		return max(plan.RunningUntil.Sub(now), 0) + time.Second
	case plan.Unsettled:
		return recheck
	}
	return 0
}

type metrics struct {
	provisioned *prometheus.HistogramVec
	deleted     prometheus.Histogram
}

// wayOf returns the way by which an operation was sent, as in efs_stunnel_manager_operations_total.
func wayOf(batch int) string {
	if batch > operations.FirstBatch {
		return "worker"
	}
	return "job"
}

// buckets reach as far as people wait: a mount Job's deadline is ten minutes.
func buckets() []float64 { return []float64{0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 600} }

// secondsSince never returns a negative number, which would make the histogram's sum fall: times in objects are cut to
// seconds, and may be of another control plane node's clock.
func secondsSince(at, now time.Time) float64 { return max(now.Sub(at), 0).Seconds() }

func newMetrics(registry prometheus.Registerer) metrics {
	register := promauto.With(registry)
	m := metrics{
		provisioned: register.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "efs_stunnel_manager_provision_duration_seconds",
			Help:    "Time from a claim's creation to its volume's; way as in efs_stunnel_manager_operations_total.",
			Buckets: buckets(),
		}, []string{"way"}),
		deleted: register.NewHistogram(prometheus.HistogramOpts{
			Name:    "efs_stunnel_manager_delete_duration_seconds",
			Help:    "Time from a volume's release to its deletion.",
			Buckets: buckets(),
		}),
	}
	for _, batch := range []int{operations.FirstBatch, operations.FirstBatch + 1} {
		m.provisioned.WithLabelValues(wayOf(batch)) // Prometheus does not count what a series begins with
	}
	return m
}
