// Package sharedvolumes is the control loop that gives each SharedVolume a volume and a claim,
// keeps them as they should be, and deletes them with it. Its key is namespace and name.
//
// Nothing is done on the file system, so there are no Jobs: EFS makes the directory of an access
// point, and a path must exist. Data is never removed.
package sharedvolumes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Options configure the loop.
type Options struct {
	Paths   Paths
	Targets func() targets.Snapshot // discovery's latest snapshot
	Poll    func()                  // has discovery poll file systems and access points soon
	Now     func() time.Time        // the apiserver's time, which is written into the status

	Events  record.EventRecorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Times and sizes of the loop.
const (
	controlLoop = "sharedvolumes"
	workers     = 8
	firstRetry  = 200 * time.Millisecond
	settleTime  = 100 * time.Millisecond // how long a cache may be behind, most of the time
)

// Controller is the loop.
type Controller struct {
	options Options
	client  kubernetes.Interface
	dynamic dynamic.Interface
	caches  *caches.Caches
	objects *caches.SharedVolumes
	events  *events.Reporter
	metrics *metrics
	queue   *queue.Queue[string]
}

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, dynamicClient dynamic.Interface, c *caches.Caches, objects *caches.SharedVolumes, o Options) (*Controller, error) {
	log := o.Log // the queue names its loop itself
	o.Log = o.Log.With(slog.String("controller", controlLoop))
	s := &Controller{
		options: o, client: client, dynamic: dynamicClient, caches: c, objects: objects,
		events: events.NewReporter(o.Events), metrics: newMetrics(o.Metrics, objects),
	}
	s.queue = queue.New(queue.Options{
		Name: controlLoop, KeyName: "sharedVolume", FirstRetry: firstRetry, Log: log,
	}, s.sync)
	return s, s.watch()
}

// Run works until the context ends. Only the leader may run it.
func (c *Controller) Run(ctx context.Context) error {
	return c.queue.Run(ctx, workers, c.TargetsChanged)
}

// TargetsChanged enqueues every SharedVolume.
func (c *Controller) TargetsChanged() {
	for _, key := range c.objects.Keys() {
		c.queue.Add(key)
	}
}

func (c *Controller) watch() error {
	c.objects.OnChange(func(key string) {
		if key == "" {
			c.TargetsChanged()
			return
		}
		c.queue.Add(key)
	})
	if err := objects.OnChange(c.objectChanged, c.caches.Volumes, c.caches.Claims); err != nil {
		return fmt.Errorf("watching for shared volumes: %w", err)
	}
	return nil
}

// objectChanged enqueues by the name, because SharedVolumes may compete for that of a volume.
func (c *Controller) objectChanged(before, after any) {
	switch o := cmp.Or(after, before).(type) {
	case *corev1.PersistentVolume:
		for _, key := range namesFor(o.Name, c.objects.Has) {
			c.queue.Add(key)
		}
	case *corev1.PersistentVolumeClaim:
		name, ok := strings.CutPrefix(o.Name, wellknown.SharedClaimPrefix)
		if key := o.Namespace + "/" + name; ok && c.objects.Has(key) {
			c.queue.Add(key)
		}
	}
}

func (c *Controller) sync(ctx context.Context, key string) (again time.Duration, err error) {
	s := c.observe(key)
	p := planFor(s)
	if p.poll {
		c.options.Poll()
	}
	if p.isEmpty(s) {
		return 0, nil
	}
	if err = c.apply(ctx, s); isRace(err) {
		return settleTime, nil
	}
	return 0, err
}

func (c *Controller) observe(key string) state {
	s := state{paths: c.options.Paths, targets: c.options.Targets(), now: c.options.Now(), object: c.objects.Get(key)}
	if s.object != nil {
		s.volume = c.caches.Volume(volumeName(s.object))
		s.claim = c.caches.ClaimNamed(s.object.Namespace, claimName(s.object))
	}
	return s
}

// metrics counts objects from the cache, so that no series outlives what it is about.
type metrics struct {
	repairs prometheus.Counter
	objects *caches.SharedVolumes
	phases  *prometheus.Desc
}

func newMetrics(registry prometheus.Registerer, objects *caches.SharedVolumes) *metrics {
	m := &metrics{
		objects: objects,
		repairs: promauto.With(registry).NewCounter(prometheus.CounterOpts{
			Name: "efs_stunnel_manager_shared_volume_repairs_total",
			Help: "Writes that repaired claims and volumes of SharedVolumes.",
		}),
		phases: prometheus.NewDesc("efs_stunnel_manager_shared_volumes", "SharedVolumes. Leader only, absent if there are none.", []string{"phase"}, nil),
	}
	registry.MustRegister(m)
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) { descs <- m.phases }

// Collect implements prometheus.Collector. Where the API is not installed there is nothing.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	all, known := m.objects.All()
	if !known || len(all) == 0 {
		return
	}
	counts := map[v1alpha1.Phase]int{v1alpha1.Pending: 0, v1alpha1.Ready: 0, v1alpha1.Deleting: 0, v1alpha1.Failed: 0}
	for _, object := range all {
		counts[cmp.Or(object.Status.Phase, v1alpha1.Pending)]++
	}
	for phase, count := range counts {
		out <- prometheus.MustNewConstMetric(m.phases, prometheus.GaugeValue, float64(count), string(phase))
	}
}

// apply reads the objects from the apiserver, plans from them and writes. The status is written
// first, so that no change is made that users cannot read about.
func (c *Controller) apply(ctx context.Context, s state) error {
	s, err := c.readLive(ctx, s)
	if err != nil || s.object == nil {
		return err
	}
	p := planFor(s)
	if s.object, err = c.writeStatus(ctx, s.object, p); err != nil {
		return err
	}
	for _, change := range p.changes {
		if err := c.applyChange(ctx, s, change); err != nil {
			return err
		}
	}
	return nil
}

// readLive observes as observe does, from the apiserver.
func (c *Controller) readLive(ctx context.Context, s state) (state, error) {
	object, err := c.resource(s.object.Namespace).Get(ctx, s.object.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.object = nil
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading SharedVolume %s: %w", nameOf(s.object), err)
	}
	if s.object, err = v1alpha1.FromUnstructured(object); err != nil {
		return s, err
	}
	s.volume, s.claim, err = objects.ReadPair(ctx, c.client, volumeName(s.object), s.object.Namespace, claimName(s.object))
	return s, err
}

func (c *Controller) resource(namespace string) dynamic.ResourceInterface {
	return c.dynamic.Resource(v1alpha1.SharedVolumes()).Namespace(namespace)
}

// isRace also returns true in a namespace that is being deleted: the SharedVolume is deleted with it.
func isRace(err error) bool {
	return objects.IsRace(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// writeStatus writes what changed, and returns the object as it is then.
func (c *Controller) writeStatus(ctx context.Context, is *v1alpha1.SharedVolume, p plan) (*v1alpha1.SharedVolume, error) {
	if p.warning != "" {
		c.events.Warn(is, wellknown.EventProvisioningFailed, "state", p.warning)
	}
	if equality.Semantic.DeepEqual(is.Status, p.status) {
		return is, nil
	}
	next := is.DeepCopy()
	next.Status = p.status
	object, err := next.ToUnstructured()
	if err != nil {
		return nil, err
	}
	written, err := c.resource(is.Namespace).UpdateStatus(ctx, object, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("writing the status of SharedVolume %s: %w", nameOf(is), err)
	}
	if p.status.Phase == v1alpha1.Ready && is.Status.Phase != v1alpha1.Ready {
		c.events.NormalAlways(is, wellknown.EventProvisioningSucceeded, fmt.Sprintf("pods can use claim %s", claimName(is)))
	}
	return v1alpha1.FromUnstructured(written)
}

func (c *Controller) applyChange(ctx context.Context, s state, change volumes.Change) error {
	if err := c.write(ctx, s, change); err != nil {
		if !isRace(err) {
			c.events.Warn(s.object, wellknown.EventProvisioningFailed, string(change.Action), fmt.Sprintf("cannot %s: %v", change.Action, err))
		}
		return fmt.Errorf("%s of SharedVolume %s: %w", change.Action, nameOf(s.object), err)
	}
	c.options.Log.InfoContext(ctx, "shared volume changed", slog.String("sharedVolume", nameOf(s.object)), slog.String("action", string(change.Action)))
	if change.Why != "" {
		c.metrics.repairs.Inc()
		c.events.Warn(s.object, wellknown.EventSharedVolumeRepaired, "", change.String())
	}
	return nil
}

func (c *Controller) write(ctx context.Context, s state, change volumes.Change) error {
	finalizers := slices.DeleteFunc(slices.Clone(s.object.Finalizers), func(f string) bool { return f == wellknown.FinalizerSharedVolume })
	switch change.Action {
	case addFinalizer:
		return c.patchFinalizers(ctx, s.object, append(finalizers, wellknown.FinalizerSharedVolume))
	case removeFinalizer:
		return c.patchFinalizers(ctx, s.object, finalizers)
	}
	return objects.ApplyChange(ctx, c.client, s.volume, s.claim, change)
}

// patchFinalizers replaces the list, because a custom resource's list cannot be merged. The
// resourceVersion keeps the patch from undoing another client's change to it.
func (c *Controller) patchFinalizers(ctx context.Context, object *v1alpha1.SharedVolume, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.UID, "resourceVersion": object.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	_, err = c.resource(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
