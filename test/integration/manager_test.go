//go:build integration

package integration_test

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/controller/discovery"
	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/crash"
	"gnuthought.com/efs-stunnel/test/integration/world"
)

// manager is one process of the manager, without an election: it believes that it leads.
type manager struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when nothing of it runs any more
	err   error         // how it ended; to be read after ended
}

// startManager starts a manager that dies at the point, or never if that is nil. Whatever is
// left of it ends with the test.
func startManager(w *world.World, point *crash.Point, edits ...func(*loops.Options)) *manager {
	w.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	m := &manager{stop: stop, ended: make(chan struct{})}
	config := rest.CopyConfig(w.Config)
	if point != nil {
		point.Kill = stop
		config.Wrap(point.Wrap)
	}
	run, err := newManager(ctx, w, config, edits)
	if err != nil {
		w.Fatalf("starting a manager: %v", err)
	}
	go func() {
		defer close(m.ended)
		m.err = run(ctx)
	}()
	w.Cleanup(func() {
		m.halt()
		if died := point != nil && point.Reached(); m.err != nil && !died {
			w.Errorf("the manager ended with an error: %v", m.err)
		}
	})
	return m
}

// startTwice starts a manager that dies at the point, and then another one, as a kubelet would.
func startTwice(w *world.World, point *crash.Point) {
	w.Helper()
	first := startManager(w, point)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.Context()))
	again, err := newManager(ctx, w, w.Config, nil)
	if err != nil {
		w.Fatalf("making a second manager: %v", err)
	}
	ended := make(chan error)
	go func() {
		<-first.ended
		ended <- again(ctx)
	}()
	w.Cleanup(func() {
		first.stop() // if it lives to the end, the second has nothing to do
		stop()
		if err := <-ended; err != nil {
			w.Errorf("the second manager ended with an error: %v", err)
		}
	})
}

// halt asks it to end, as a rollout does, and waits.
func (m *manager) halt() {
	m.stop()
	<-m.ended
}

// newManager gives what runs until a context ends. The start itself already needs the cluster.
func newManager(ctx context.Context, w *world.World, config *rest.Config, edits []func(*loops.Options)) (func(context.Context) error, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	ours, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	options := loops.Options{
		Metadata: lists, Dynamic: ours, SharedVolumeInterval: 100 * time.Millisecond,
		Provisioner:     w.Provisioner,
		Cluster:         w.ClusterUID,
		PollingInterval: time.Second,
		Range:           ports.Range{Base: wellknown.DefaultBasePort, Count: wellknown.DefaultPortCount},
		DNSSuffix:       "efs.us-east-1.amazonaws.com",
		Backoff:         time.Second,
		Jobs:            mountjobs.Settings{Namespace: w.Namespace, Image: "registry.example.com/efs-stunnel:1.0"},
		Batch:           wellknown.DefaultMountJobBatch,
		Events:          events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: wellknown.ManagerDeployment}),
		Metrics:         prometheus.NewRegistry(),
		Log:             slog.New(slog.NewTextHandler(w.Output(), nil)),
	}
	for _, edit := range edits {
		edit(&options)
	}
	var api discovery.API
	if w.EFS != nil { // or pinned targets are all that there are
		api = w.EFS
	}
	l, err := loops.New(client, api, options)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer events.Shutdown()
		return runLoops(ctx, l)
	}, nil
}

// runLoops returns when loops and caches have ended.
func runLoops(ctx context.Context, l *loops.Loops) error {
	cached := make(chan struct{})
	go func() {
		defer close(cached)
		l.Caches.Run(ctx)
	}()
	err := l.Caches.Await(ctx)
	if err == nil {
		err = l.Caches.CaughtUp(ctx)
	}
	if err == nil {
		err = l.Run(ctx)
	}
	<-ctx.Done()
	<-cached
	if errors.Is(err, context.Canceled) {
		return nil // it was stopped before it led
	}
	return err
}
