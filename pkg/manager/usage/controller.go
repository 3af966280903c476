// Package usage is the control loops that find out what volumes use. The key of one
// is a file system: it has survey Jobs count the volumes, and reads what they write
// to their logs. The key of the other is a claim: it records what was counted, and
// reports when that is more than the claim requests. Nothing that a survey says leads
// to anything else.
package usage

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// Options say how the loops work.
type Options struct {
	// Jobs are what an administrator chose for every Job.
	Jobs mountjobs.Settings
	// Interval is the time between two surveys of a file system; 0 is never, unless one is requested.
	Interval time.Duration
	// Logs reads a pod's log; nil is by the client.
	Logs    LogReader
	Events  record.EventRecorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// LogReader reads what the survey's container has logged in the time before now, all if that is 0.
type LogReader func(ctx context.Context, pod string, since time.Duration) (io.ReadCloser, error)

// Controller is both loops.
type Controller struct {
	options      Options
	client       kubernetes.Interface
	gatherer     *observe.Gatherer
	measurements measurements
	progress     progress
	writes       *rate.Limiter
	fileSystems  *queue.Queue[string]
	claims       *queue.Queue[cache.ObjectName]
}

const (
	loopSurveys = "surveys"
	loopUsage   = "usage"
	firstRetry  = time.Second
	parallel    = 2

	// writesPerSecond of claims leave most requests to the loops that claims wait for.
	writesPerSecond = 20
)

// New makes the loops. It is to be called before the caches run.
func New(client kubernetes.Interface, g *observe.Gatherer, o Options) (*Controller, error) {
	c := &Controller{options: o, client: client, gatherer: g, writes: rate.NewLimiter(writesPerSecond, writesPerSecond)}
	if o.Logs == nil {
		c.options.Logs = c.podLog
	}
	c.fileSystems = queue.New(queue.Options{Name: loopSurveys, KeyName: "fileSystem", FirstRetry: firstRetry, Log: o.Log}, c.syncFileSystem)
	c.claims = queue.New(queue.Options{Name: loopUsage, KeyName: "claim", FirstRetry: firstRetry, Log: o.Log}, c.syncClaim)
	c.options.Log = o.Log.With(slog.String("controller", loopSurveys))
	if err := objects.OnChange(c.changed, g.Caches.Claims, g.Caches.Jobs, g.Caches.Pods); err != nil {
		return nil, fmt.Errorf("watching for surveys: %w", err)
	}
	if err := o.Metrics.Register(collector{c}); err != nil {
		return nil, fmt.Errorf("registering the metrics of volumes: %w", err)
	}
	return c, nil
}

// Run works until the context ends.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.claims.Run(ctx, parallel, c.enqueueRecorded) })
	group.Go(func() error { return c.fileSystems.Run(ctx, parallel, c.TargetsChanged) })
	return group.Wait()
}

// TargetsChanged enqueues every file system.
func (c *Controller) TargetsChanged() {
	for _, id := range c.gatherer.Caches.FileSystems() {
		c.fileSystems.Add(id)
	}
}

// enqueueRecorded enqueues the claims whose request may have changed while there was no leader.
func (c *Controller) enqueueRecorded() {
	for _, claim := range c.allClaims() {
		if caches.UsageOf(claim) != "" {
			c.claims.Add(cache.MetaObjectToName(claim))
		}
	}
}

// changed enqueues what an object is about. A standby enqueues nothing.
func (c *Controller) changed(before, after any) {
	if !c.fileSystems.Running() {
		return
	}
	switch o := cmp.Or(after, before).(type) {
	case *corev1.PersistentVolumeClaim:
		c.claimChanged(before, o)
	case *batchv1.Job:
		if name, ok := mountjobs.ParseName(o.Name); ok && name.Kind == mountjobs.Survey {
			c.fileSystems.Add(name.FileSystemID)
		}
	case *corev1.Pod:
		if o.Labels[wellknown.LabelAppComponent] == mountjobs.AppComponentSurveyJob {
			c.fileSystems.Add(o.Labels[wellknown.LabelMountJobFileSystemID])
		}
	}
}

func (c *Controller) claimChanged(before any, claim *corev1.PersistentVolumeClaim) {
	if id, ok := strings.CutPrefix(claim.Name, wellknown.RootVolumePrefix); ok && claim.Namespace == c.options.Jobs.Namespace {
		c.fileSystems.Add(id)
		return
	}
	was, ok := before.(*corev1.PersistentVolumeClaim)
	if !ok || was == nil {
		return // it is new: nothing was counted
	}
	if caches.UsageOf(was) != caches.UsageOf(claim) || volumes.Requested(was) != volumes.Requested(claim) {
		c.claims.Add(cache.MetaObjectToName(claim))
	}
}
