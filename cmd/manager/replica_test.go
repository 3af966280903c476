package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/clock"
	"gnuthought.com/efs-stunnel/test/support/loggingtest"
)

// recorder records what happened, in order.
type recorder struct {
	mu    sync.Mutex // protects following
	lines []string
	added chan struct{} // closed when a line is added
}

func (d *recorder) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
	if d.added != nil {
		close(d.added)
		d.added = nil
	}
}

func (d *recorder) read() (lines []string, added <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.added == nil {
		d.added = make(chan struct{})
	}
	return slices.Clone(d.lines), d.added
}

// await waits for a line.
func (d *recorder) await(t *testing.T, line string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		lines, added := d.read()
		if slices.Contains(lines, line) {
			return
		}
		select {
		case <-added:
		case <-deadline:
			t.Fatalf("%q did not happen, only %q", line, lines)
		}
	}
}

// fakeCaches are filled from the start by default.
type fakeCaches struct {
	*recorder
	filled  <-chan struct{}                 // closed when they are
	catchUp func(ctx context.Context) error // nil succeeds
	behind  error                           // what they wait for
}

func newCaches(d *recorder) *fakeCaches {
	filled := make(chan struct{})
	close(filled)
	return &fakeCaches{recorder: d, filled: filled}
}

func (c *fakeCaches) Run(ctx context.Context) {
	c.add("caches run")
	<-ctx.Done()
	c.add("caches end")
}

func (c *fakeCaches) Await(ctx context.Context) error {
	select {
	case <-c.filled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *fakeCaches) HasSynced() bool {
	select {
	case <-c.filled:
		return true
	default:
		return false
	}
}

func (c *fakeCaches) Behind() error { return c.behind }

func (c *fakeCaches) CaughtUp(ctx context.Context) error {
	c.add("caches catch up")
	if c.catchUp == nil {
		return nil
	}
	return c.catchUp(ctx)
}

// fakeLoop runs until its context ends, and then for as long as its drain takes.
type fakeLoop struct {
	*recorder
	drain  func()       // nil for no time
	result func() error // nil for none
}

func (l *fakeLoop) Run(ctx context.Context) error {
	l.add("loop starts")
	<-ctx.Done()
	if l.drain != nil {
		l.drain()
	}
	l.add("loop ends")
	if l.result == nil {
		return nil
	}
	return l.result()
}

// replica is a manager without a cluster.
type replica struct {
	*manager
	*recorder
	client *fake.Clientset
	logged *loggingtest.Buffer
}

func newReplica(t *testing.T, change func(*options)) *replica {
	t.Helper()
	o := defaults()
	o.HTTPAddress = "127.0.0.1:0"
	if change != nil {
		change(&o)
	}
	w := &replica{recorder: &recorder{}, logged: &loggingtest.Buffer{}, client: fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "the-cluster"}},
	)}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(w.logged, nil))
	var err error
	w.manager, err = newManager(o, client.New(metricsNamespace, log), clients{
		work: w.client, lists: metadatafake.NewSimpleMetadataClient(scheme), warnings: w.client, events: w.client, lease: w.client, reviews: w.client,
	}, clock.New(metricsNamespace, time.Now, log))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// gives is a wire function for ready-made parts.
func gives(caches cacheSet, loops runner) func(context.Context) (workload, error) {
	return func(context.Context) (workload, error) { return workload{caches, loops}, nil }
}

// start runs the replica until stop is called.
func (w *replica) start(t *testing.T, wire func(context.Context) (workload, error)) (stop context.CancelFunc, result <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- w.run(ctx, wire) }()
	return cancel, ended
}

// end waits for the replica's end.
func end(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return nil
	}
}
