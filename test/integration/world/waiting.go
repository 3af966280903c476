package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

const (
	// patience is much more than anything takes on a busy machine.
	patience     = 5 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// Eventually waits until ask has no error. If it never comes to that, the test ends with the
// last error and the world's story.
func (w *World) Eventually(what string, ask func(ctx context.Context) error) {
	w.Helper()
	if last := w.within(patience, ask); last != nil {
		w.Fatalf("%s: not after %s: %v\n%s", what, patience, last, w.Story())
	}
}

// within asks until there is no error, and gives the last one when the time is over.
func (w *World) within(limit time.Duration, ask func(ctx context.Context) error) (last error) {
	ctx := context.WithoutCancel(w.Context()) // also in cleanups
	_ = wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(ctx context.Context) (bool, error) {
		last = ask(ctx)
		return last == nil, nil
	})
	return last
}

// AwaitBound waits until a claim has a volume, and gives both.
func (w *World) AwaitBound(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	w.Helper()
	w.Eventually(fmt.Sprintf("claim %s/%s is Bound", claim.Namespace, claim.Name), func(ctx context.Context) error {
		found, err := w.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", found.Status.Phase)
		}
		claim = found
		return nil
	})
	return claim, must(w.Client.CoreV1().PersistentVolumes().Get(w.Context(), claim.Spec.VolumeName, metav1.GetOptions{}))(w)
}

// AwaitRoot waits until Jobs can begin on a file system, and gives its root claim. Claims that wait
// for it long are told so.
func (w *World) AwaitRoot(fileSystemID string) *corev1.PersistentVolumeClaim {
	w.Helper()
	root, _ := w.AwaitBound(volumes.RootClaim(fileSystemID, w.Namespace))
	return root
}

// AwaitVolumeGone waits until the volume of a claim's uid is no more.
func (w *World) AwaitVolumeGone(claim *corev1.PersistentVolumeClaim) {
	w.Helper()
	name := volumes.VolumeName(claim.UID)
	w.Eventually("volume "+name+" is gone", func(ctx context.Context) error {
		found, err := w.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		return wantGone(found.Status.Phase, err)
	})
}

// AwaitJobsUsed waits until the manager has used every Job's outcome and needs none of them.
func (w *World) AwaitJobsUsed() {
	w.Helper()
	w.Eventually("no Job waits for the manager", func(ctx context.Context) error {
		found, err := w.Client.BatchV1().Jobs(w.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, job := range found.Items {
			if slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) {
				return fmt.Errorf("%s has the finalizer %s", job.Name, wellknown.FinalizerOutcome)
			}
		}
		return nil
	})
}

// wantGone turns finding something into an error, and not finding it into none.
func wantGone[T any](state T, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("it is still there: %v", state)
}
