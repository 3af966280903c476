package testenv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

const (
	// timeout is much more than anything takes on a busy machine.
	timeout = 5 * time.Minute
	// firstPoll is the delay before the second check.
	firstPoll = 50 * time.Millisecond
	// maxPoll is the delay after some checks. A dozen tests at once wait, and most checks list objects: polled as
	// often as at first, the apiserver would work for them more than for the manager.
	maxPoll = 250 * time.Millisecond
)

// Eventually polls until check returns no error. After the timeout the test ends with the last error
// and a dump of the environment.
func (e *Env) Eventually(what string, check func(ctx context.Context) error) {
	e.Helper()
	if last := e.pollUntil(timeout, check); last != nil {
		e.Fatalf("%s: not after %s: %v\n%s", what, timeout, last, e.Dump())
	}
}

// pollUntil polls until there is no error, and returns the last error when the time is over.
func (e *Env) pollUntil(limit time.Duration, check func(ctx context.Context) error) (last error) {
	ctx := context.WithoutCancel(e.Context()) // also in cleanups
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	delays := wait.Backoff{Duration: firstPoll, Factor: 1.25, Cap: maxPoll, Steps: math.MaxInt}
	_ = delays.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || last == nil || ctx.Err() == nil { // else the check was cut, and the error before says more
			last = err
		}
		return err == nil, nil
	})
	return last
}

// WaitForBound waits until a claim has a volume, and returns both.
func (e *Env) WaitForBound(claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	e.Helper()
	e.Eventually(fmt.Sprintf("claim %s/%s is Bound", claim.Namespace, claim.Name), func(ctx context.Context) error {
		found, err := e.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if found.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", found.Status.Phase)
		}
		claim = found
		return nil
	})
	return claim, must(e.Client.CoreV1().PersistentVolumes().Get(e.Context(), claim.Spec.VolumeName, metav1.GetOptions{}))(e)
}

// WaitForRootClaim waits until mount Jobs can start on a file system, and returns its root claim.
// Claims that wait long for it get an event.
func (e *Env) WaitForRootClaim(fileSystemID string) *corev1.PersistentVolumeClaim {
	e.Helper()
	_, root := volumes.RootObjects(fileSystemID, 0, e.Namespace)
	root, _ = e.WaitForBound(root)
	return root
}

// WaitForDeleted waits until get returns a NotFound error.
func (e *Env) WaitForDeleted(what string, get func(context.Context) error) {
	e.Helper()
	e.Eventually(what+" is deleted", func(ctx context.Context) error { return WantNotFound(get(ctx)) })
}

// WaitForVolumeDeleted waits until the volume with the name for the claim's uid is deleted.
func (e *Env) WaitForVolumeDeleted(claim *corev1.PersistentVolumeClaim) {
	e.Helper()
	name := volumes.VolumeName(claim.UID)
	e.WaitForDeleted("volume "+name, func(ctx context.Context) error {
		_, err := e.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// WaitForJobsReleased waits until no Job has the finalizer that keeps its outcome for the manager.
func (e *Env) WaitForJobsReleased() {
	e.Helper()
	e.Eventually("the manager has released every Job", func(ctx context.Context) error {
		found, err := e.Client.BatchV1().Jobs(e.Namespace).List(ctx, metav1.ListOptions{})
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

// WantNotFound is no error for a NotFound error, and an error for everything else.
func WantNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it still exists")
	}
	return err
}
