//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
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

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/manager/workers"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/crash"
)

// manager is one process of the manager without leader election: it acts as the leader.
type manager struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when all its goroutines have ended
	err   error         // of the process; read it after ended only
}

// startManager starts a manager that dies at the point, or runs until the end of the test if that is
// nil.
func (f *fixture) startManager(point *crash.Point, edits ...func(*loops.Options)) *manager {
	f.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	m := &manager{stop: stop, ended: make(chan struct{})}
	config := rest.CopyConfig(f.Config)
	if point != nil {
		point.Kill = stop
		config.Wrap(point.Wrap)
	}
	run, err := f.newManager(ctx, config, edits...)
	f.check(err)
	go func() {
		defer close(m.ended)
		m.err = run(ctx)
	}()
	f.Cleanup(func() {
		m.halt()
		if died := point != nil && point.Reached(); m.err != nil && !died {
			f.Errorf("the manager ended with an error: %v", m.err)
		}
	})
	return m
}

// startManagers starts a manager that dies at the point, and then another one, as a kubelet does.
func (f *fixture) startManagers(point *crash.Point) {
	f.Helper()
	first := f.startManager(point)
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	run, err := f.newManager(ctx, f.Config)
	f.check(err)
	ended := make(chan error, 1)
	go func() {
		<-first.ended
		ended <- run(ctx)
	}()
	f.Cleanup(func() {
		first.stop() // where the point is not reached
		stop()
		if err := <-ended; err != nil {
			f.Errorf("the second manager ended with an error: %v", err)
		}
	})
}

// halt stops the manager, as a rollout does, and waits for its end.
func (m *manager) halt() {
	m.stop()
	<-m.ended
}

// newManager returns what runs the loops until a context ends.
func (f *fixture) newManager(ctx context.Context, config *rest.Config, edits ...func(*loops.Options)) (func(context.Context) error, error) {
	l, stopEvents, err := f.newLoops(ctx, config, edits...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		defer stopEvents()
		return runLoops(ctx, l)
	}, nil
}

// newLoops makes the loops, which need the cluster already here.
func (f *fixture) newLoops(ctx context.Context, config *rest.Config, edits ...func(*loops.Options)) (l *loops.Loops, stopEvents func(), err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	untyped, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	lists, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	options := f.options()
	options.Metadata, options.Dynamic = lists, untyped
	options.Events = events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: wellknown.ManagerDeployment})
	for _, edit := range edits {
		edit(&options)
	}
	l, err = loops.New(client, f.EFS, options)
	return l, events.Shutdown, err
}

// options have shorter waits than the real manager's, and keep to what is the environment's: a manager
// respects the ports of all loopback volumes of the cluster, and makes root volumes for whatever file
// systems they name.
func (f *fixture) options() loops.Options {
	var filter efs.Filter
	for n := 1; n <= portsPerEnv; n++ {
		filter.IDs = append(filter.IDs, fmt.Sprintf("fs-%dx%d", f.Number, n))
	}
	return loops.Options{
		Settings: loops.Settings{
			Settings:        decide.Settings{Provisioner: f.Provisioner, Cluster: f.ClusterUID, Backoff: time.Second},
			PollingInterval: time.Second,
			Range:           f.portRange(),
			Filter:          filter,
			Jobs:            mountjobs.Settings{Namespace: f.Namespace, Image: "registry.example.com/efs-stunnel:1.0", Linger: f.linger},
			Batch:           wellknown.DefaultMountJobBatch,
		},
		SharedVolumeInterval: 100 * time.Millisecond,
		DNSSuffix:            "efs.us-east-1.amazonaws.com",
		// Times of Jobs are in seconds: with less than one, the order of a deletion and a sweep
		// is not known.
		SweepDelay: time.Second,
		Workers:    workers.Options{Host: wellknown.LoopbackAddress, Reviews: f.Client.AuthenticationV1().TokenReviews()},
		Metrics:    prometheus.NewRegistry(),
		Log:        slog.New(slog.NewTextHandler(f.Output(), nil)),
	}
}

// runLoops returns when the loops and caches have ended.
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
		return nil // it was stopped before its caches had synced
	}
	return err
}
