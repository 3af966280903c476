// Package sharedvolumes is the control loop that gives each SharedVolume a volume and a claim,
// keeps them as they should be, and takes them away again. Its key is namespace and name.
//
// Nothing is done on the file system, so there are no Jobs: an access point's directory is made
// by EFS, and a path has to be there. Data is never removed.
package sharedvolumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/queue"
	"gnuthought.com/efs-stunnel/pkg/tell"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Options say how the loop works.
type Options struct {
	Settings Settings
	// Targets is discovery's latest snapshot.
	Targets func() targets.Snapshot
	// LookAgain has discovery look for file systems and access points soon.
	LookAgain func()
	// Now is the apiserver's time, which is written into the status.
	Now func() time.Time

	Events  record.EventRecorder
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Times and sizes of the loop.
const (
	controlLoop  = "sharedvolumes"
	workers      = 8
	firstRetry   = 200 * time.Millisecond
	maxRetry     = time.Minute
	drainTimeout = 15 * time.Second
	settleTime   = 100 * time.Millisecond // how long a cache may be behind, most of the time
)

// Controller is the loop.
type Controller struct {
	options Options
	world   observer
	exec    executor
	queue   *queue.Queue[string]
}

// New makes the loop. It is to be called before the caches run.
func New(client kubernetes.Interface, dynamicClient dynamic.Interface, c *caches.Caches, objects *caches.SharedVolumes, o Options) (*Controller, error) {
	m, err := newMetrics(o.Metrics, objects)
	if err != nil {
		return nil, err
	}
	s := &Controller{
		options: o,
		world: observer{
			settings: o.Settings, objects: objects, caches: c, targets: o.Targets, now: o.Now,
			dynamic: dynamicClient, live: kubeobjects.Reader{Client: client},
		},
		exec: executor{
			client: client, dynamic: dynamicClient, tell: tell.New(o.Events), metrics: m,
			log: o.Log.With(slog.String("controller", controlLoop)),
		},
	}
	s.queue = queue.New(queue.Options{
		Name: controlLoop, KeyName: "sharedVolume",
		FirstRetry: firstRetry, MaxRetry: maxRetry, DrainTimeout: drainTimeout, Log: o.Log,
	}, s.sync)
	return s, s.watch()
}

// Run works until the context ends. Only the leader may run it.
func (c *Controller) Run(ctx context.Context) error {
	if err := c.queue.Run(ctx, workers, c.lookAtAll); err != nil {
		return fmt.Errorf("shared volumes: %w", err)
	}
	return nil
}

// TargetsChanged asks for a look at all objects.
func (c *Controller) TargetsChanged() { c.lookAtAll() }

func (c *Controller) lookAtAll() {
	for _, namespaced := range c.world.objects.Keys() {
		c.queue.Add(namespaced)
	}
}

func (c *Controller) watch() error {
	c.world.objects.OnChange(func(namespaced string) {
		if namespaced == "" {
			c.lookAtAll()
			return
		}
		c.queue.Add(namespaced)
	})
	_, err1 := c.world.caches.Volumes.AddEventHandler(handler(c.volumeChanged))
	_, err2 := c.world.caches.Claims.AddEventHandler(handler(c.claimChanged))
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("watching for shared volumes: %w", err)
	}
	return nil
}

func handler(changed func(object any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, after any) { changed(after) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			changed(object)
		},
	}
}

// volumeChanged goes by the name, which is what objects compete for.
func (c *Controller) volumeChanged(object any) {
	volume, ok := object.(*corev1.PersistentVolume)
	if !ok {
		return
	}
	for _, namespaced := range namesFor(volume.Name, c.world.objects.Has) {
		c.queue.Add(namespaced)
	}
}

func (c *Controller) claimChanged(object any) {
	claim, ok := object.(*corev1.PersistentVolumeClaim)
	if !ok {
		return
	}
	name, ok := strings.CutPrefix(claim.Name, wellknown.SharedClaimPrefix)
	if namespaced := claim.Namespace + "/" + name; ok && c.world.objects.Has(namespaced) {
		c.queue.Add(namespaced)
	}
}

// sync looks at one object and takes one step. What a cache shows is only a reason to look
// closer.
func (c *Controller) sync(ctx context.Context, namespaced string) (again time.Duration, err error) {
	s := c.world.observe(namespaced)
	p := decide(s)
	if p.lookAgain {
		c.options.LookAgain()
	}
	if s.object == nil || p.step == "" && p.warning == "" && equality.Semantic.DeepEqual(s.object.Status, p.status) {
		return 0, nil
	}
	if s, err = c.world.lookAt(ctx, s); err != nil {
		return 0, err
	}
	if s.object == nil {
		return 0, nil
	}
	if err = c.exec.apply(ctx, s, decide(s)); isRace(err) {
		return settleTime, nil
	}
	return 0, err
}
