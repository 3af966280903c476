package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/kube/election"
)

func (w *replica) leaseHolder(t *testing.T) string {
	t.Helper()
	lease, err := w.client.CoordinationV1().Leases("efs-stunnel").Get(t.Context(), "efs-manager", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

// TestEndIsOrderly is the promise to the next leader: it begins when this one has ended.
func TestEndIsOrderly(t *testing.T) {
	w := newReplica(t, nil)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", UID: "1"}}
	holder := ""
	stop, result := w.start(t, gives(newCaches(w.recorder), &fakeLoop{recorder: w.recorder, drain: func() {
		w.add("loop drains")
		holder = w.leaseHolder(t)
		w.events.Event(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "made")
	}}))
	w.await(t, "loop starts")
	w.await(t, "caches run")
	if !w.leading() {
		t.Error("it does not say that it leads")
	}
	stop()
	if err := end(t, result); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	lines, _ := w.read()
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "caches run" }) // beside the rest
	want := []string{"caches catch up", "loop starts", "loop drains", "loop ends", "caches end"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("order mismatch (-want +got):\n%s", diff)
	}
	if holder == "" || w.leaseHolder(t) != "" {
		t.Errorf("the lease was held by %q while the loop drained and by %q after it; want this replica, then none", holder, w.leaseHolder(t))
	}
	events, err := w.client.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 || events.Items[0].Source.Component != "efs-stunnel" {
		t.Errorf("events of the last sync: %+v, %v", events.Items, err)
	}
	if w.leading() {
		t.Error("it says that it leads after its end")
	}
}

func TestStandbyIsReadyAndDoesNothing(t *testing.T) {
	w := newReplica(t, nil)
	other, seconds, now := "other", int32(3600), metav1.NowMicro()
	if err := w.client.Tracker().Add(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: "efs-manager"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &other, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now},
	}); err != nil {
		t.Fatal(err)
	}
	requested := make(chan struct{}, 100)
	w.client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case requested <- struct{}{}:
		default:
		}
		return false, nil, nil
	})
	stop, result := w.start(t, gives(newCaches(w.recorder), &fakeLoop{recorder: w.recorder}))
	<-requested // the election has begun
	if code, body := w.get(t, "/readyz"); code != 200 {
		t.Errorf("a standby with full caches is not ready:\n%s", body)
	}
	if _, body := w.get(t, "/metrics"); !strings.Contains(body, "efs_stunnel_manager_leading 0") {
		t.Errorf("no efs_stunnel_manager_leading 0 in\n%s", body)
	}
	stop()
	if err := end(t, result); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if lines, _ := w.read(); slices.Contains(lines, "loop starts") {
		t.Errorf("the loops of a standby ran: %q", lines)
	}
	if got := w.leaseHolder(t); got != other {
		t.Errorf("the lease is held by %q, want %q", got, other)
	}
}

func TestReplicaWithEmptyCachesTakesNoPartInTheElection(t *testing.T) {
	w := newReplica(t, nil)
	cold := &fakeCaches{recorder: w.recorder, filled: make(chan struct{})}
	stop, result := w.start(t, gives(cold, &fakeLoop{recorder: w.recorder}))
	w.await(t, "caches run")
	if code, body := w.get(t, "/readyz"); code != 503 || !strings.Contains(body, "[-] caches: not all objects") {
		t.Errorf("got %d and\n%s", code, body)
	}
	if code, body := w.get(t, "/healthz"); code != 200 {
		t.Errorf("a replica that waits is not healthy:\n%s", body)
	}
	stop()
	if err := end(t, result); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	for _, action := range w.client.Actions() {
		if action.GetResource().Resource == "leases" {
			t.Errorf("it requested the lease: %s", action.GetVerb())
		}
	}
}

func TestWithoutElection(t *testing.T) {
	w := newReplica(t, func(o *options) { o.leaderElect = false })
	stop, result := w.start(t, gives(newCaches(w.recorder), &fakeLoop{recorder: w.recorder}))
	w.await(t, "loop starts")
	if !w.leading() {
		t.Error("it does not say that it leads")
	}
	if code, _ := w.get(t, "/healthz"); code != 200 {
		t.Errorf("healthz answers %d", code)
	}
	stop()
	if err := end(t, result); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if actions := w.client.Actions(); len(actions) > 0 {
		t.Errorf("it requested %v, want nothing", actions)
	}
}

func TestLostLeaseEndsTheProcess(t *testing.T) {
	w := newReplica(t, func(o *options) {
		o.lease.LeaseDuration, o.lease.RenewDeadline, o.lease.RetryPeriod = time.Second, 300*time.Millisecond, 50*time.Millisecond
	})
	var away atomic.Bool
	w.client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return away.Load(), nil, errors.New("the apiserver is away")
	})
	hangs := make(chan struct{})
	defer close(hangs)
	slow := fake.NewClientset()
	w.clients.warnings = slow
	slow.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-hangs
		return false, nil, nil
	})
	_, result := w.start(t, gives(newCaches(w.recorder), &fakeLoop{recorder: w.recorder}))
	w.await(t, "loop starts")
	w.events.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, corev1.EventTypeWarning, "Reason", "message")
	away.Store(true)
	if err := end(t, result); !errors.Is(err, election.ErrLost) {
		t.Errorf("got %v, want %v", err, election.ErrLost)
	}
	if text := w.logged.String(); !strings.Contains(text, "were not written in time") || !strings.Contains(text, "duration=0s") {
		t.Errorf("it waits for its events: %s", text)
	}
}

func TestLoopsThatEndByThemselvesEndTheProcess(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		loops runner
		want  error
	}{
		"with an error":    {ended{broken}, broken},
		"without an error": {ended{nil}, errLoopEnded},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newReplica(t, nil)
			_, result := w.start(t, gives(newCaches(w.recorder), tt.loops))
			if err := end(t, result); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if got := w.leaseHolder(t); got != "" {
				t.Errorf("the lease is held by %q after the end", got)
			}
		})
	}
}

// ended is a loop that is over at once.
type ended struct{ err error }

func (e ended) Run(context.Context) error { return e.err }

func TestLoopsStartWhenTheCachesHaveCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newReplica(t, nil)
		caches, tries := newCaches(w.recorder), 0
		caches.catchUp = func(context.Context) error {
			if tries++; tries < 4 {
				return errors.New("connection refused")
			}
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- w.lead(ctx, workload{caches, &fakeLoop{recorder: w.recorder}}) }()
		synctest.Wait()
		if code, body := w.get(t, "/readyz"); code != 503 || !strings.Contains(body, "[-] start: bringing the caches up to date: connection refused") {
			t.Errorf("got %d and\n%s", code, body)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		lines, _ := w.read()
		if want := []string{"caches catch up", "caches catch up", "caches catch up", "caches catch up", "loop starts"}; !slices.Equal(lines, want) {
			t.Errorf("got %q, want %q", lines, want)
		}
		if got := strings.Count(w.logged.String(), "start has to wait"); got != 3 {
			t.Errorf("it said %d times why it waits, want 3", got)
		}
		stop()
		if err := <-result; err != nil {
			t.Errorf("got %v, want a clean end", err)
		}
	})
}

func TestEndBeforeTheStart(t *testing.T) {
	w := newReplica(t, nil)
	w.client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.add("requested")
		return true, nil, errors.New("connection refused")
	})
	stop, result := w.start(t, w.wire)
	w.await(t, "requested")
	stop()
	if err := end(t, result); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
}

func TestErrorOfTheWiringEndsTheProcess(t *testing.T) {
	w := newReplica(t, nil)
	want := errors.New("no region")
	_, result := w.start(t, func(context.Context) (workload, error) { return workload{}, want })
	if err := end(t, result); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestAddressThatIsTakenEndsTheProcess(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	w := newReplica(t, func(o *options) { o.HTTPAddress = listener.Addr().String() })
	_, result := w.start(t, gives(newCaches(w.recorder), nil))
	if err := end(t, result); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v, want that the address is in use", err)
	}
}
