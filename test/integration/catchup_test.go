//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
)

// TestStandbyCatchesUpWhileClaimsAreDeleted: claims of other provisioners are created and deleted all
// the time. As in a large cluster, where a list takes seconds, a claim in each list is deleted when
// the standby receives it.
func TestStandbyCatchesUpWhileClaimsAreDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(f.Context()))
	var running sync.WaitGroup
	var caught atomic.Bool
	var lists atomic.Int32
	var l *loops.Loops
	config := rest.CopyConfig(f.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			query := request.URL.Query()
			if request.Method != http.MethodGet || !strings.HasSuffix(request.URL.Path, "/api/v1/persistentvolumeclaims") || query.Get("watch") != "" || caught.Load() {
				return next.RoundTrip(request)
			}
			if query.Get("continue") == "" {
				lists.Add(1)
			}
			other, err := f.createForeignClaim(ctx, fmt.Sprintf("listed-%d", lists.Load()))
			if err != nil {
				return nil, err
			}
			response, err := next.RoundTrip(request)
			if err != nil {
				return nil, err
			}
			return response, f.deleteForeignClaim(ctx, l, other)
		})
	})
	l, stopEvents, err := f.newLoops(ctx, config)
	f.check(err)
	f.Cleanup(func() {
		stop()
		running.Wait()
		stopEvents()
	})
	running.Go(func() { l.Caches.Run(ctx) })
	f.check(l.Caches.Await(ctx))
	lists.Store(0)
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			other, err := f.createForeignClaim(ctx, fmt.Sprintf("foreign-%d", i))
			if err == nil {
				err = f.deleteForeignClaim(ctx, l, other)
			}
			if err != nil && ctx.Err() == nil {
				f.Errorf("claims of others: %v", err)
				return
			}
		}
	})
	claim := f.createClaim("data")
	running.Go(func() {
		if l.Caches.CaughtUp(ctx) != nil {
			return // the test is over
		}
		caught.Store(true)
		if err := l.Run(ctx); err != nil {
			f.Errorf("the leader ended with an error: %v", err)
		}
	})
	f.waitForBound(claim)
	if got := lists.Load(); got != 1 {
		t.Errorf("claims were listed %d times before the leader began, want once", got)
	}
}

// createForeignClaim creates a claim that no provisioner serves.
func (f *fixture) createForeignClaim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	none := ""
	return f.Client.CoreV1().PersistentVolumeClaims(f.Team).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &none, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		},
	}, metav1.CreateOptions{})
}

// deleteForeignClaim returns when the manager's cache does not have the claim.
func (f *fixture) deleteForeignClaim(ctx context.Context, l *loops.Loops, claim *corev1.PersistentVolumeClaim) error {
	claims := f.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	if err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	noFinalizers := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		return l.Caches.ClaimNamed(claim.Namespace, claim.Name) == nil, nil
	})
}

// TestConflictOfAUIDCountsAsGone: the apiserver's own errors differ in their messages only.
func TestConflictOfAUIDCountsAsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	claims := f.Client.CoreV1().PersistentVolumeClaims(f.Team)
	claim, err := f.createForeignClaim(f.Context(), "data")
	f.check(err)
	other := claim.DeepCopy()
	other.UID = "00000000-0000-0000-0000-000000000000"
	absent := claim.DeepCopy()
	absent.Name = "absent"
	stale := objects.OnlyThis(claim)
	version := "1"
	stale.Preconditions.ResourceVersion = &version
	annotate := func(claim *corev1.PersistentVolumeClaim, kind types.PatchType) error {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{"a":"b"}}}`, claim.UID)
		_, err := claims.Patch(f.Context(), claim.Name, kind, patch, metav1.PatchOptions{})
		return err
	}
	merge := func(claim *corev1.PersistentVolumeClaim) error {
		patch := []byte(`{"metadata":{"resourceVersion":"1","annotations":{"a":"c"}}}`)
		_, err := claims.Patch(f.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		gone bool
	}{
		"patch of another uid":           {annotate(other, types.MergePatchType), true},
		"strategic patch of another uid": {annotate(other, types.StrategicMergePatchType), true},
		"delete of another uid":          {claims.Delete(f.Context(), other.Name, objects.OnlyThis(other)), true},
		"patch of an absent object":      {annotate(absent, types.MergePatchType), true},
		"delete of an absent object":     {claims.Delete(f.Context(), absent.Name, objects.OnlyThis(absent)), true},
		"delete of an older version":     {claims.Delete(f.Context(), claim.Name, stale), false},
		"patch of an older version":      {merge(claim), false},
		"patch of the object":            {annotate(claim, types.MergePatchType), false},
		"strategic patch of the object":  {annotate(claim, types.StrategicMergePatchType), false},
		"delete of the object, last":     {claims.Delete(f.Context(), claim.Name, objects.OnlyThis(claim)), false},
	} {
		if got := objects.IsGone(tt.err); got != tt.gone {
			t.Errorf("%s: %v counts as gone: %v, want %v", name, tt.err, got, tt.gone)
		}
	}
}
