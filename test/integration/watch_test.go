//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/test/integration/crash"
)

// watchBlocker holds back what the apiserver sends to a manager's watches, as a network does that has
// lost a connection silently. Other requests go through.
type watchBlocker struct {
	mu       sync.Mutex
	changed  *sync.Cond
	blocked  *string            // guarded by mu: part of the paths of watches; nil for none
	received []*strings.Builder // guarded by mu: what each watch has received
	gets     []string           // guarded by mu: paths of GET requests since block
}

func newWatchBlocker() *watchBlocker {
	b := &watchBlocker{}
	b.changed = sync.NewCond(&b.mu)
	return b
}

// block holds the watches with a part in their paths; "" is all.
func (b *watchBlocker) block(part string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocked, b.gets = &part, nil
}

func (b *watchBlocker) unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocked = nil
	b.changed.Broadcast()
}

// wantReceived returns an error unless a watch has received an event with all texts.
func (b *watchBlocker) wantReceived(texts ...string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, received := range b.received {
		for line := range strings.SplitSeq(received.String(), "\n") {
			if containsAll(line, texts) {
				return nil
			}
		}
	}
	return fmt.Errorf("no event with %q was received", texts)
}

// wantGet returns an error unless an object was read since block.
func (b *watchBlocker) wantGet(path string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, get := range b.gets {
		if strings.HasSuffix(get, path) {
			return nil
		}
	}
	return fmt.Errorf("read were %q", b.gets)
}

// wrap is for rest.Config.Wrap.
func (b *watchBlocker) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil || request.Method != http.MethodGet {
			return response, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if request.URL.Query().Get("watch") == "" {
			b.gets = append(b.gets, request.URL.Path)
			return response, nil
		}
		received := &strings.Builder{}
		b.received = append(b.received, received)
		response.Body = &watchBody{ReadCloser: response.Body, blocker: b, received: received, path: request.URL.Path, ctx: request.Context()}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// watchBody is the body of a watch's response.
type watchBody struct {
	io.ReadCloser
	blocker  *watchBlocker
	received *strings.Builder // guarded by the blocker's mu
	path     string
	ctx      context.Context //nolint:containedctx // the request's, whose body this is
}

// Read holds what it has read while the watch is blocked.
func (w *watchBody) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	b := w.blocker
	defer context.AfterFunc(w.ctx, b.changed.Broadcast)()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.blocked != nil && strings.Contains(w.path, *b.blocked) && w.ctx.Err() == nil {
		b.changed.Wait()
	}
	w.received.Write(p[:n])
	return n, err
}

// standby has full caches, and becomes the leader with lead.
type standby struct {
	point *crash.Point // counts its writes
	lead  func()
}

// startStandby starts a standby whose watches can be blocked. It returns when the caches are full.
func (f *fixture) startStandby(b *watchBlocker) *standby {
	f.Helper()
	s := &standby{point: &crash.Point{}}
	config := rest.CopyConfig(f.Config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // to read along
	config.Wrap(s.point.Wrap)
	config.Wrap(b.wrap)
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	l, stopEvents, err := f.newLoops(ctx, config)
	f.check(err)
	var running sync.WaitGroup
	running.Go(func() { l.Caches.Run(ctx) })
	f.Cleanup(func() {
		stop()
		running.Wait()
		stopEvents()
	})
	f.check(l.Caches.Await(ctx))
	s.lead = sync.OnceFunc(func() {
		running.Go(func() {
			if err := l.Caches.CaughtUp(ctx); err != nil {
				return // the test is over
			}
			if err := l.Run(ctx); err != nil {
				f.Errorf("the standby ended with an error: %v", err)
			}
		})
	})
	return s
}
