package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// bindRoot adds a root volume and claim that Jobs can use.
func bindRoot(t testing.TB, l loop) {
	t.Helper()
	volume, claim := volumes.RootObjects(fileSystem, 20490, wellknown.Namespace)
	volume.UID, claim.UID, volume.Spec.ClaimRef.UID = "root-volume", "root-claim", "root-claim"
	volume.Status.Phase, claim.Status.Phase = corev1.VolumeBound, corev1.ClaimBound
	add(t, l.gatherer.Caches.Volumes.GetStore(), volume)
	add(t, l.gatherer.Caches.Claims.GetStore(), claim)
}

// TestRefusedJobIsRetriedWithBackoff: after 0.1, 0.2, 0.4, 0.8, 1.6 and 3.2 seconds, however many events come.
func TestRefusedJobIsRetriedWithBackoff(t *testing.T) {
	for _, events := range []bool{false, true} {
		t.Run(fmt.Sprintf("events: %t", events), func(t *testing.T) { refusedJobIsRetried(t, events) })
	}
}

func refusedJobIsRetried(t *testing.T, events bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t)
		bindRoot(t, l)
		if err := l.client.Tracker().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "ns"}}); err != nil {
			t.Fatal(err)
		}
		tries := 0
		l.client.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries++
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "x", errors.New("exceeded quota: small"))
		})
		claim := waitingClaim(1)
		claim.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
		add(t, l.gatherer.Caches.Claims.GetStore(), claim)
		l.gatherer.Decide(claim.UID)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var others sync.WaitGroup
		others.Go(func() {
			for events && ctx.Err() == nil {
				l.enqueue(fileSystem)
				<-time.After(10 * time.Millisecond)
			}
		})
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		others.Wait()
		if tries < 6 || tries > 8 {
			t.Errorf("%d tries in ten seconds, want 7", tries)
		}
	})
}

// TestClaimsThatWaitEnqueueNothing while nothing changes: claims are decided about once a minute.
func TestClaimsThatWaitEnqueueNothing(t *testing.T) {
	l := newLoop(t)
	enqueued := 0
	l.gatherer.OnPending = func(string) { enqueued++ }
	for range 3 {
		for n := range 100 {
			claim := waitingClaim(n)
			add(t, l.gatherer.Caches.Claims.GetStore(), claim)
			l.gatherer.Decide(claim.UID)
		}
	}
	if enqueued != 100 {
		t.Errorf("enqueued %d times, want once for each claim", enqueued)
	}
}

// TestOperationsThatWaitAreReadOnce in a look, however often they are needed.
func TestOperationsThatWaitAreReadOnce(t *testing.T) {
	l := newLoop(t)
	claim := waitingClaim(1)
	add(t, l.gatherer.Caches.Claims.GetStore(), claim)
	l.gatherer.Decide(claim.UID)
	s := l.observe(fileSystem)
	if first, second := s.pending(), s.pending(); len(first) != 1 || &first[0] != &second[0] {
		t.Errorf("got %+v and %+v, want the same slice", first, second)
	}
}

// TestWhatKeepsAClaimFromAJobIsHandedOver as long as it lasts.
func TestWhatKeepsAClaimFromAJobIsHandedOver(t *testing.T) {
	l := newLoop(t) // without a root claim
	claim := waitingClaim(1)
	claim.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Minute))
	l.notReady.Store(fileSystem, claim.CreationTimestamp.Time)
	add(t, l.gatherer.Caches.Claims.GetStore(), claim)
	l.gatherer.Decide(claim.UID)
	var blocked map[string]decide.Verdict
	l.options.Blocked = func(_ string, verdicts map[string]decide.Verdict) { blocked = verdicts }
	if _, err := l.sync(t.Context(), fileSystem); err != nil || len(blocked) != 1 || blocked[volumes.VolumeName(claim.UID)].Cause != status.NoMountJob {
		t.Errorf("got %+v, %v", blocked, err)
	}
	l.gatherer.Unindex(claim.UID)
	if _, err := l.sync(t.Context(), fileSystem); err != nil || len(blocked) != 0 {
		t.Errorf("got %+v, %v after it has ended", blocked, err)
	}
}
