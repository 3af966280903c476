// Package usage is the control loop that records what volumes use. Its key is a claim: it records what surveys
// have counted in the claim's directory, and reports when that is more than the claim requests. Nothing that a
// survey says leads to anything else.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
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
	for _, claim := range c.allClaims() {
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
	if !c.queue.Running() || !ok || !exists || was == nil || claim == nil {
		return
	}
	if caches.UsageOf(was) != caches.UsageOf(claim) || volumes.Requested(was) != volumes.Requested(claim) {
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
		if ref := volume.Spec.ClaimRef; ref != nil && changed[path] {
			c.queue.Add(cache.ObjectName{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	c.measurements.keepOnly(fileSystemID, paths)
}

// Busy reports whether claims wait for what was counted in their directories to be recorded.
func (c *Controller) Busy() bool { return c.queue.Len() > 0 }
