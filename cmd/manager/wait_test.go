package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLongWaitIsReported by log, readiness and metric, at whatever point of the start it is. A
// request that is never answered is no error.
func TestLongWaitIsReported(t *testing.T) {
	behind := errors.New("the cache is behind the apiserver (claims: 3 of 9 objects are missing)")
	tests := map[string]struct {
		wait func(ctx context.Context, w *replica, release <-chan struct{}) error
		want string
	}{
		"a leader whose caches are behind": {func(ctx context.Context, w *replica, release <-chan struct{}) error {
			caches := newCaches(w.recorder)
			caches.behind = behind
			caches.catchUp = func(context.Context) error {
				<-release
				return nil
			}
			ctx, stop := context.WithCancel(ctx)
			return w.lead(ctx, workload{caches, loopFunc(func(context.Context) error {
				stop()
				return nil
			})})
		}, "bringing the caches up to date: " + behind.Error()},
		"a replica whose caches fill slowly": {func(ctx context.Context, w *replica, release <-chan struct{}) error {
			caches := newCaches(w.recorder)
			caches.behind, caches.filled = behind, release
			return w.retry(ctx, "filling the caches", caches.Behind, caches.Await)
		}, "filling the caches: " + behind.Error()},
		"a request without an answer": {func(ctx context.Context, w *replica, release <-chan struct{}) error {
			return w.retry(ctx, "asking which cluster this is", nil, func(context.Context) error {
				<-release
				return nil
			})
		}, "asking which cluster this is takes 1m0s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newReplica(t, nil)
				made := workload{caches: newCaches(w.recorder)}
				w.workload.Store(&made)
				release, result := make(chan struct{}), make(chan error, 1)
				go func() { result <- tt.wait(t.Context(), w, release) }()

				<-time.After(longWait - time.Second)
				synctest.Wait()
				if code, body := w.get(t, "/readyz"); code != 200 || w.logged.String() != "" {
					t.Errorf("before the wait is long: %d, %s\n%s", code, body, w.logged)
				}
				<-time.After(time.Minute - longWait + time.Second)
				synctest.Wait()
				if code, body := w.get(t, "/readyz?verbose"); code != 503 || !strings.Contains(body, "[-] start: "+tt.want+"\n") {
					t.Errorf("got %d and\n%s", code, body)
				}
				if _, body := w.get(t, "/metrics"); !strings.Contains(body, "efs_stunnel_manager_start_wait_seconds 60\n") {
					t.Errorf("efs_stunnel_manager_start_wait_seconds 60 is missing")
				}
				if got := strings.Count(w.logged.String(), `msg="start has to wait"`); got != 1 || !strings.Contains(w.logged.String(), "duration=5s") {
					t.Errorf("logged %d times in a minute, want once, after 5 s:\n%s", got, w.logged)
				}

				close(release)
				if err := <-result; err != nil {
					t.Error(err)
				}
				if code, body := w.get(t, "/readyz"); code != 200 {
					t.Errorf("after the wait: %d and\n%s", code, body)
				}
				if _, body := w.get(t, "/metrics"); !strings.Contains(body, "efs_stunnel_manager_start_wait_seconds 0\n") {
					t.Errorf("efs_stunnel_manager_start_wait_seconds 0 is missing")
				}
			})
		})
	}
}

// loopFunc is a loop.
type loopFunc func(context.Context) error

func (f loopFunc) Run(ctx context.Context) error { return f(ctx) }
