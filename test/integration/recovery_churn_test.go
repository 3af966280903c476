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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"gnuthought.com/efs-stunnel/pkg/controller/kubeobjects"
	"gnuthought.com/efs-stunnel/pkg/controller/loops"
)

// TestRecoveryWhileClaimsAreDeleted has a standby become the leader while claims of another
// provisioner come and go all the time. As in a large cluster, where a list takes seconds, each of
// its lists is answered when a claim that it names is gone.
func TestRecoveryWhileClaimsAreDeleted(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(d.Context()))
	var running sync.WaitGroup
	d.Cleanup(func() {
		stop()
		running.Wait()
	})
	var caught atomic.Bool
	var lists atomic.Int32
	var l *loops.Loops
	config := rest.CopyConfig(d.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			query := request.URL.Query()
			if request.Method != http.MethodGet || !strings.HasSuffix(request.URL.Path, "/api/v1/persistentvolumeclaims") || query.Get("watch") != "" || caught.Load() {
				return next.RoundTrip(request)
			}
			if query.Get("continue") == "" {
				lists.Add(1)
			}
			stranger, err := d.createStranger(ctx, fmt.Sprintf("listed-%d", lists.Load()))
			if err != nil {
				return nil, err
			}
			response, err := next.RoundTrip(request)
			if err != nil {
				return nil, err
			}
			return response, d.endStranger(ctx, l, stranger)
		})
	})
	client, err := kubernetes.NewForConfig(config)
	d.check(err)
	l, err = loops.New(client, d.EFS, d.options(ctx, config))
	d.check(err)
	running.Go(func() { l.Caches.Run(ctx) })
	d.check(l.Caches.Await(ctx))
	lists.Store(0)
	running.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			stranger, err := d.createStranger(ctx, fmt.Sprintf("stranger-%d", i))
			if err == nil {
				err = d.endStranger(ctx, l, stranger)
			}
			if err != nil && ctx.Err() == nil {
				d.Errorf("claims of others: %v", err)
				return
			}
		}
	})
	claim := d.claim("data")
	running.Go(func() {
		if l.Caches.CaughtUp(ctx) != nil {
			return // the test is over
		}
		caught.Store(true)
		if err := l.Run(ctx); err != nil {
			d.Errorf("the leader ended with an error: %v", err)
		}
	})
	d.awaitBound(claim)
	if got := lists.Load(); got != 1 {
		t.Errorf("claims were listed %d times before the leader began, want once", got)
	}
}

// pollStranger is the time between two looks at the cache.
const pollStranger = 5 * time.Millisecond

// createStranger makes a claim that no provisioner cares about.
func (d *drill) createStranger(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	none := ""
	return d.Client.CoreV1().PersistentVolumeClaims(d.Team).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &none, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
		},
	}, metav1.CreateOptions{})
}

// endStranger returns when the manager's cache does not have the claim.
func (d *drill) endStranger(ctx context.Context, l *loops.Loops, claim *corev1.PersistentVolumeClaim) error {
	claims := d.Client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	if err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, free, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return wait.PollUntilContextCancel(ctx, pollStranger, true, func(context.Context) (bool, error) {
		return l.Caches.ClaimNamed(claim.Namespace, claim.Name) == nil, nil
	})
}

// TestGoneAndConflict holds what counts as gone to the words of a real apiserver.
func TestGoneAndConflict(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	claims := d.Client.CoreV1().PersistentVolumeClaims(d.Team)
	claim, err := d.createStranger(d.Context(), "data")
	d.check(err)
	other := claim.DeepCopy()
	other.UID = "00000000-0000-0000-0000-000000000000"
	absent := claim.DeepCopy()
	absent.Name = "absent"
	stale := kubeobjects.OnlyThis(claim)
	version := "1"
	stale.Preconditions.ResourceVersion = &version
	annotate := func(claim *corev1.PersistentVolumeClaim, kind types.PatchType) error {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{"a":"b"}}}`, claim.UID)
		_, err := claims.Patch(d.Context(), claim.Name, kind, patch, metav1.PatchOptions{})
		return err
	}
	merge := func(claim *corev1.PersistentVolumeClaim) error {
		patch := []byte(`{"metadata":{"resourceVersion":"1","annotations":{"a":"c"}}}`)
		_, err := claims.Patch(d.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	for name, tt := range map[string]struct {
		err  error
		gone bool
	}{
		"patch of another uid":            {annotate(other, types.MergePatchType), true},
		"strategic patch of another uid":  {annotate(other, types.StrategicMergePatchType), true},
		"delete of another uid":           {claims.Delete(d.Context(), other.Name, kubeobjects.OnlyThis(other)), true},
		"patch of what is not there":      {annotate(absent, types.MergePatchType), true},
		"delete of what is not there":     {claims.Delete(d.Context(), absent.Name, kubeobjects.OnlyThis(absent)), true},
		"delete of an older version":      {claims.Delete(d.Context(), claim.Name, stale), false},
		"patch of an older version":       {merge(claim), false},
		"patch of the very object":        {annotate(claim, types.MergePatchType), false},
		"strategic patch of that":         {annotate(claim, types.StrategicMergePatchType), false},
		"delete of the very object, last": {claims.Delete(d.Context(), claim.Name, kubeobjects.OnlyThis(claim)), false},
	} {
		if got := kubeobjects.IsGone(tt.err); got != tt.gone {
			t.Errorf("%s: %v counts as gone: %v, want %v", name, tt.err, got, tt.gone)
		}
	}
}
