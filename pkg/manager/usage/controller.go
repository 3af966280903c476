// Package usage is the control loop that records what volumes use. Its key is a claim: it records what surveys
// have counted in the claim's directory, and reports when that is more than the claim requests. Nothing that a
// survey says leads to anything else.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Options say how the loop works.
type Options struct {
	Events  record.EventRecorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Controller is the loop.
type Controller struct {
	options      Options
	client       kubernetes.Interface
	gatherer     *observe.Gatherer
	measurements measurements
	counted      sync.Map // cache.ObjectName of claims of which what was counted is not recorded
	writes       *rate.Limiter
	queue        *queue.Queue[cache.ObjectName]
}

const (
	controlLoop = "usage"
	firstRetry  = time.Second
	parallel    = 2

	// writesPerSecond of claims leave most requests to the loops that claims wait for.
	writesPerSecond = 20
)

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, g *observe.Gatherer, o Options) (*Controller, error) {
	c := &Controller{options: o, client: client, gatherer: g, writes: rate.NewLimiter(writesPerSecond, writesPerSecond)}
	c.queue = queue.New(queue.Options{Name: controlLoop, KeyName: "claim", FirstRetry: firstRetry, Log: o.Log}, c.sync)
	if err := objects.OnChange(c.claimChanged, g.Caches.Claims); err != nil {
		return nil, fmt.Errorf("watching for usage: %w", err)
	}
	if err := o.Metrics.Register(collector{c}); err != nil {
		return nil, fmt.Errorf("registering the metrics of volumes: %w", err)
	}
	return c, nil
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	return c.queue.Run(ctx, parallel, c.enqueueRecorded)
}

// enqueueRecorded enqueues the claims whose request may have changed while there was no leader.
func (c *Controller) enqueueRecorded() {
	for _, claim := range caches.All[*corev1.PersistentVolumeClaim](c.gatherer.Caches.Claims) {
		if caches.UsageOf(claim) != "" {
			c.queue.Add(cache.MetaObjectToName(claim))
		}
	}
}

// claimChanged enqueues a claim whose record or request has changed; of a new one, nothing was counted. A standby
// enqueues nothing.
func (c *Controller) claimChanged(before, after any) {
	was, ok := before.(*corev1.PersistentVolumeClaim)
	claim, exists := after.(*corev1.PersistentVolumeClaim)
	if !c.queue.Running() || !ok || !exists {
		return
	}
	if caches.UsageOf(was) != caches.UsageOf(claim) || mountjobs.Requested(was) != mountjobs.Requested(claim) {
		c.queue.Add(cache.MetaObjectToName(claim))
	}
}

// Counted takes what a survey has counted, and enqueues the claims of those directories.
func (c *Controller) Counted(fileSystemID string, counted []operations.Usage, at time.Time) {
	c.measurements.add(fileSystemID, counted, at)
	paths, changed := map[string]bool{}, map[string]bool{}
	for _, usage := range counted {
		changed[usage.Path] = true
	}
	for _, volume := range c.gatherer.Caches.VolumesOnFileSystem(fileSystemID) {
		_, path, _ := caches.DirectoryOf(volume)
		paths[path] = true
		if ref := volume.Spec.ClaimRef; ref != nil && changed[path] && c.queue.Running() {
			key := cache.ObjectName{Namespace: ref.Namespace, Name: ref.Name}
			c.counted.Store(key, nil)
			c.queue.Add(key)
		}
	}
	c.measurements.keepOnly(fileSystemID, paths)
}

// Busy reports whether claims wait for what was counted in their directories to be recorded: until the first try.
func (c *Controller) Busy() (busy bool) {
	c.counted.Range(func(any, any) bool { busy = true; return false })
	return busy
}

// sync records what a claim's directory holds, if that has changed, and reports once when it is more than
// the claim requests: the record remembers that, so that no other leader repeats it.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	defer c.counted.Delete(key)
	claim := c.gatherer.Caches.ClaimNamed(key.Namespace, key.Name)
	if claim == nil {
		return 0, nil
	}
	counted, ok := c.usageOf(claim)
	if !ok {
		return 0, nil
	}
	recorded, _ := mountjobs.ParseUsage(caches.UsageOf(claim))
	next, ok := recorded.Update(claim, counted)
	if !ok {
		return 0, nil
	}
	if err := c.writes.Wait(ctx); err != nil {
		return 0, err
	}
	err = objects.Patch(ctx, c.client, claim, objects.Metadata("annotations", map[string]string{wellknown.AnnotationUsage: next.Encode()}))
	if err == nil && next.OverRequest && !recorded.OverRequest {
		c.options.Events.Event(claim, corev1.EventTypeWarning, wellknown.EventVolumeOverRequest, overRequest(claim, next))
	}
	return 0, err
}

func overRequest(claim *corev1.PersistentVolumeClaim, usage mountjobs.UsageRecord) string {
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	used := resource.NewQuantity(usage.Bytes, resource.BinarySI)
	return fmt.Sprintf("the directory holds %s (%d bytes) in %d files, and the claim requests %s; nothing is refused", used, usage.Bytes, usage.Files, requested.String())
}

// usageOf is what a claim's directory holds: as this leader's surveys have counted it, else as it is recorded.
// ok is false if it is not known.
func (c *Controller) usageOf(claim *corev1.PersistentVolumeClaim) (usage mountjobs.UsageRecord, ok bool) {
	volume := c.gatherer.Caches.Volume(claim.Spec.VolumeName)
	if volume == nil || volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != claim.UID {
		return usage, false
	}
	id, path, ok := caches.DirectoryOf(volume)
	if !ok || volumes.Read(volume, c.gatherer.Provisioner).Kind == volumes.Foreign {
		return usage, false
	}
	if usage, ok := c.measurements.of(id, path); ok {
		return usage, true
	}
	return mountjobs.ParseUsage(caches.UsageOf(claim))
}

// measurements holds what surveys have counted since this leader began, by directory. What was counted before is in
// the annotations of claims.
type measurements struct{ all sync.Map } // of mountjobs.UsageRecord

type directory struct{ fileSystemID, path string }

func (m *measurements) add(fileSystemID string, counted []operations.Usage, at time.Time) {
	for _, usage := range counted {
		m.all.Store(directory{fileSystemID, usage.Path}, mountjobs.NewUsageRecord(usage, at))
	}
}

func (m *measurements) of(fileSystemID, path string) (record mountjobs.UsageRecord, ok bool) {
	value, _ := m.all.Load(directory{fileSystemID, path})
	record, ok = value.(mountjobs.UsageRecord)
	return record, ok
}

// keepOnly drops what no volume has any more.
func (m *measurements) keepOnly(fileSystemID string, paths map[string]bool) {
	for key := range m.all.Range {
		if at, _ := key.(directory); at.fileSystemID == fileSystemID && !paths[at.path] {
			m.all.Delete(key)
		}
	}
}

// collector gives the numbers of all claims whose directories were counted. Their labels are those of
// kubelet's metrics of volumes, so that both can be joined. Only the leader has any.
type collector struct{ *Controller }

var (
	labels    = []string{"namespace", "persistentvolumeclaim"}
	usedBytes = prometheus.NewDesc("efs_stunnel_volume_used_bytes",
		"Bytes that the file server has allocated for a claim's directory, as the last survey counted them. Leader only, absent before the first.", labels, nil)
	usedFiles = prometheus.NewDesc("efs_stunnel_volume_files",
		"Files and directories in a claim's directory, as the last survey counted them. Leader only, absent before the first.", labels, nil)
	requestedBytes = prometheus.NewDesc("efs_stunnel_volume_requested_bytes",
		"Bytes that a claim whose directory was counted requests. Leader only.", labels, nil)
)

// Describe implements prometheus.Collector.
func (c collector) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- usedBytes
	descriptions <- usedFiles
	descriptions <- requestedBytes
}

// Collect implements prometheus.Collector.
func (c collector) Collect(metrics chan<- prometheus.Metric) {
	if c.queue.Running() {
		c.collectAll(metrics)
	}
}

func (c collector) collectAll(metrics chan<- prometheus.Metric) {
	for _, claim := range caches.All[*corev1.PersistentVolumeClaim](c.gatherer.Caches.Claims) {
		usage, ok := c.usageOf(claim)
		if !ok {
			continue
		}
		for description, value := range map[*prometheus.Desc]int64{usedBytes: usage.Bytes, usedFiles: usage.Files, requestedBytes: mountjobs.Requested(claim)} {
			metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, float64(value), claim.Namespace, claim.Name)
		}
	}
}
