package events_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
)

// fixture is a Broadcast to an apiserver that may fail.
type fixture struct {
	*events.Broadcast
	client *fake.Clientset
	log    bytes.Buffer

	mu       sync.Mutex // protects following
	failure  func(verb string) error
	requests []string
	dropped  []string
}

func newFixture() *fixture {
	w := &fixture{client: fake.NewClientset()}
	w.client.PrependReactor("*", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.requests = append(w.requests, action.GetVerb())
		if w.failure == nil {
			return false, nil, nil
		}
		err := w.failure(action.GetVerb())
		return err != nil, nil, err
	})
	w.Broadcast = events.Start(w.client, w.client, func(reason string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dropped = append(w.dropped, reason)
	}, slog.New(slog.NewTextHandler(&w.log, nil)))
	return w
}

func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-of-" + name)}}
}

func (w *fixture) record(name, reason, message string) {
	w.Event(claim(name), corev1.EventTypeWarning, reason, message)
}

func (w *fixture) recordAbout(what, message string) {
	w.AnnotatedEventf(claim("a"), map[string]string{wellknown.AnnotationTunnel: what}, corev1.EventTypeWarning, "Unhealthy", "%s", message)
}

// close gives the broadcast a minute.
func (w *fixture) close(t *testing.T) {
	t.Helper()
	w.Close(time.Minute)
	synctest.Wait()
}

func (w *fixture) written(t *testing.T) []corev1.Event {
	t.Helper()
	w.mu.Lock()
	w.failure = nil
	w.mu.Unlock()
	list, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestCloseWritesRecordedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		for i := range 20 {
			w.record(fmt.Sprintf("claim-%d", i), "ProvisioningFailed", "no file system")
		}
		w.close(t)
		got := w.written(t)
		if len(got) != 20 {
			t.Fatalf("%d events are written, want 20", len(got))
		}
		if e := got[0]; e.Source.Component != "efs-stunnel" || e.Namespace != "team" || e.Reason != "ProvisioningFailed" {
			t.Errorf("got %+v", e)
		}
	})
}

func TestWarningsDoNotWaitForOtherEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warnings, normal, busy := fake.NewClientset(), fake.NewClientset(), make(chan struct{})
		written := 0
		normal.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			<-busy
			written++
			create, ok := action.(clienttesting.CreateAction)
			if !ok {
				t.Errorf("got %T", action)
				return true, nil, nil
			}
			return true, create.GetObject(), nil
		})
		b := events.Start(warnings, normal, func(string) {}, slog.New(slog.DiscardHandler))
		for i := range 2000 { // more than a queue has places
			b.Event(claim(fmt.Sprintf("claim-%d", i)), corev1.EventTypeNormal, "ProvisioningSucceeded", "made")
		}
		b.Eventf(claim("a"), corev1.EventTypeWarning, "ProvisioningFailed", "no file system")
		synctest.Wait()
		list, err := warnings.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("got %d warnings, %v, want the one that was recorded", len(list.Items), err)
		}
		close(busy)
		synctest.Wait()
		b.Close(time.Minute)
		synctest.Wait()
		if written < 1000 {
			t.Errorf("got %d other events, want as many as the queue has places", written)
		}
	})
}

func TestRepeatedEventsAreAggregated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		for range 3 {
			w.record("a", "ProvisioningFailed", "no file system")
		}
		w.close(t)
		if got := w.written(t); len(got) != 1 || got[0].Count != 3 {
			t.Errorf("got %+v, want one event with count 3", got)
		}
	})
}

func TestRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		for i := range 60 {
			w.record("a", fmt.Sprintf("Reason%d", i), "again")
			<-time.After(time.Millisecond) // an event is named for the time, and the queue is short
		}
		w.close(t)
		if got := len(w.written(t)); got != 25 {
			t.Errorf("%d events about one object are written, want 25", got)
		}
	})
}

// A flood about one thing leaves the others of the same object alone.
func TestEventsAboutDifferentThingsAreNotAggregated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		for i := range 40 {
			w.recordAbout("loud", fmt.Sprintf("timeout %d", i))
			<-time.After(time.Millisecond)
		}
		w.recordAbout("quiet", "denied")
		w.close(t)
		got := w.written(t)
		if !slices.ContainsFunc(got, func(e corev1.Event) bool { return e.Message == "denied" }) {
			t.Errorf("the only event about something else is not among the %d that are written", len(got))
		}
	})
}

// TestRefusalsAreDropped is run with the clock of the bubble: a repetition would wait for it.
func TestRefusalsAreDropped(t *testing.T) {
	resource := corev1.Resource("events")
	terminating := apierrors.NewForbidden(resource, "e", errors.New("namespace is going away"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := map[string]struct {
		err    error
		reason string
		logged bool
	}{
		"namespace terminating": {terminating, "Forbidden", false},
		"forbidden":             {apierrors.NewForbidden(resource, "e", errors.New("no")), "Forbidden", false},
		"namespace gone":        {apierrors.NewNotFound(corev1.Resource("namespaces"), "team"), "NotFound", false},
		"invalid":               {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Event").GroupKind(), "e", nil), "Invalid", true},
		"no reason":             {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500}}, "Unknown", true},
		"wrapped":               {fmt.Errorf("asking: %w", apierrors.NewForbidden(resource, "e", errors.New("no"))), "Forbidden", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture()
				w.failure = func(string) error { return tt.err }
				begin := time.Now()
				w.record("a", "ProvisioningFailed", "no file system")
				w.close(t)
				if waited := time.Since(begin); waited > 0 || len(w.requests) != 1 {
					t.Errorf("%d requests in %s, want one and no wait", len(w.requests), waited)
				}
				if len(w.dropped) != 1 || w.dropped[0] != tt.reason {
					t.Errorf("dropped: %v, want %s", w.dropped, tt.reason)
				}
				if logged := strings.Contains(w.log.String(), "event dropped"); logged != tt.logged {
					t.Errorf("in the log: %t, want %t", logged, tt.logged)
				}
			})
		})
	}
}

func TestNextEventAfterARefusalIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.failure = func(string) error { return apierrors.NewForbidden(corev1.Resource("events"), "e", errors.New("no")) }
		w.record("a", "ProvisioningFailed", "no file system")
		synctest.Wait()
		w.mu.Lock()
		w.failure = nil
		w.mu.Unlock()
		w.record("a", "ProvisioningFailed", "no file system")
		w.close(t)
		if got := w.written(t); len(got) != 1 {
			t.Errorf("got %d events, want the repetition of the one that was dropped", len(got))
		}
	})
}

func TestNetworkErrorsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		begin := time.Now()
		w.failure = func(string) error {
			if time.Since(begin) < 15*time.Second {
				return errors.New("connection refused")
			}
			return nil
		}
		w.record("a", "ProvisioningFailed", "no file system")
		w.close(t)
		if got := w.written(t); len(got) != 1 {
			t.Errorf("got %d events, want 1", len(got))
		}
	})
}

func TestCloseDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture()
		w.failure = func(string) error { return errors.New("connection refused") }
		w.record("a", "ProvisioningFailed", "no file system")
		begin := time.Now()
		w.close(t)
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("it took %s, want the minute it was given", waited)
		}
		if !strings.Contains(w.log.String(), "events may be lost") {
			t.Errorf("the log is %q", w.log.String())
		}
	})
}
