//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/test/integration/crash"
)

// valve is in a manager's watches. Shut, it holds back what they have to say, as a network does
// that has lost a connection without telling; nothing else is held.
type valve struct {
	mu      sync.Mutex
	changed *sync.Cond
	held    *string            // guarded by mu: part of the paths of watches; nil when open
	said    []*strings.Builder // guarded by mu: what has come through each watch
	gets    []string           // guarded by mu: paths of single reads that were answered
}

func newValve() *valve {
	v := &valve{}
	v.changed = sync.NewCond(&v.mu)
	return v
}

// shut holds the watches whose paths have a part; "" is all.
func (v *valve) shut(part string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held, v.gets = &part, nil
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = nil
	v.changed.Broadcast()
}

// heard is no error when something with all the words has come through a watch in one piece.
func (v *valve) heard(words ...string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, said := range v.said {
		for line := range strings.SplitSeq(said.String(), "\n") {
			if containsAll(line, words) {
				return nil
			}
		}
	}
	return fmt.Errorf("nothing has come with %q", words)
}

// asked is no error when an object was read singly, since the valve was shut.
func (v *valve) asked(path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, get := range v.gets {
		if strings.HasSuffix(get, path) {
			return nil
		}
	}
	return fmt.Errorf("read were %q", v.gets)
}

// wrap is for rest.Config.Wrap.
func (v *valve) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil || request.Method != http.MethodGet {
			return response, err
		}
		if request.URL.Query().Get("watch") == "" {
			v.mu.Lock()
			v.gets = append(v.gets, request.URL.Path)
			v.mu.Unlock()
			return response, nil
		}
		response.Body = &watched{ReadCloser: response.Body, valve: v, said: v.newWatch(), path: request.URL.Path, ctx: request.Context()}
		return response, nil
	})
}

func (v *valve) newWatch() (said *strings.Builder) {
	v.mu.Lock()
	defer v.mu.Unlock()
	said = &strings.Builder{}
	v.said = append(v.said, said)
	return said
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// watched is the body of a watch.
type watched struct {
	io.ReadCloser
	valve *valve
	said  *strings.Builder // guarded by the valve's mu
	path  string
	ctx   context.Context //nolint:containedctx // the request's, whose body this is
}

// Read waits with what it has, as long as the valve is shut.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	v := w.valve
	defer context.AfterFunc(w.ctx, v.changed.Broadcast)()
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.held != nil && strings.Contains(w.path, *v.held) && w.ctx.Err() == nil {
		v.changed.Wait()
	}
	w.said.Write(p[:n])
	return n, err
}

// standby has caches that are full, and leads when it is told to.
type standby struct {
	point *crash.Point // counts its writes
	lead  func()
}

// startBehind starts a standby whose watches go through a valve. It returns when its caches
// are full.
func (d *drill) startBehind(v *valve) *standby {
	d.Helper()
	s := &standby{point: &crash.Point{}}
	config := rest.CopyConfig(d.Config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // to read along
	config.Wrap(s.point.Wrap)
	config.Wrap(v.wrap)
	client, err := kubernetes.NewForConfig(config)
	d.check(err)
	ctx, stop := context.WithCancel(context.WithoutCancel(d.Context()))
	l, err := loops.New(client, d.EFS, d.options(ctx, config))
	d.check(err)
	var running sync.WaitGroup
	running.Go(func() { l.Caches.Run(ctx) })
	d.Cleanup(func() {
		stop()
		running.Wait()
	})
	d.check(l.Caches.Await(ctx))
	s.lead = sync.OnceFunc(func() {
		running.Go(func() {
			if err := l.Caches.CaughtUp(ctx); err != nil {
				return // the test is over
			}
			if err := l.Run(ctx); err != nil {
				d.Errorf("the standby ended with an error: %v", err)
			}
		})
	})
	return s
}

// options are those with which start would start a manager.
func (d *drill) options(ctx context.Context, config *rest.Config) loops.Options {
	d.Helper()
	var options loops.Options
	_, err := newManager(ctx, d.World, config, append(quickEdits(d), func(o *loops.Options) { options = *o }))
	d.check(err)
	options.Metrics = prometheus.NewRegistry() // the other one is in use
	return options
}
