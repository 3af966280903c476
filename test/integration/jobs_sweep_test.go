//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// TestJobsSweepOnceForABurst has one sweep for many deletions, after which no Job is held.
func TestJobsSweepOnceForABurst(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.start(nil, func(o *loops.Options) { o.SweepDelay = time.Hour }) // however long the burst takes
	claims := d.crowd(10, func(int) string { return d.fileSystem })
	d.awaitBound(claims...)
	for _, claim := range claims {
		d.deleteClaim(claim)
	}
	d.awaitCleaned(claims...)
	if sweeps := d.jobs(d.Context(), mountjobs.Sweep, d.fileSystem); len(sweeps) != 0 {
		t.Errorf("sweeps %q before their time", namesOf(sweeps))
	}
	// Times of Jobs are in seconds: a sweep in the second of a cleanup's end may have begun before it.
	d.sweepAt(time.Now().Add(2 * time.Second))
	d.awaitAllGone(claims...)
	d.AwaitJobsUsed()
	// A manager that sees the Job's release before the root claim's annotation sweeps once more.
	if sweeps := d.jobs(d.Context(), mountjobs.Sweep, d.fileSystem); len(sweeps) > 2 {
		t.Errorf("sweeps %q", namesOf(sweeps))
	}
	if next := d.rootClaim(d.Context()).Annotations[wellknown.AnnotationNextSweep]; next != "never" {
		t.Errorf("another sweep is due at %q, with nothing to sweep", next)
	}
}

func (d *drill) rootClaim(ctx context.Context) *corev1.PersistentVolumeClaim {
	d.Helper()
	root, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Get(ctx, volumes.RootName(d.fileSystem), metav1.GetOptions{})
	d.check(err)
	return root
}

// TestJobsSweepAgainAfterAFailure has a sweep fail, the failure told, and the trash emptied by
// another manager when the time has come that the root claim remembers.
func TestJobsSweepAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.start(nil)
	claim := d.claim("data")
	d.awaitBound(claim)
	d.Kubelet.PlayNext(kubelet.Fate{}, kubelet.Fate{Ending: kubelet.Killed})
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	d.awaitEvent(d.AwaitRoot(d.fileSystem), wellknown.EventSweepFailed, "efs-sweep-"+d.fileSystem+"-00001", "137")
	d.AwaitJobsUsed()
	if left := d.trash(d.fileSystem); len(left) == 0 {
		t.Error("the sweep that was killed has swept")
	}
	root := d.rootClaim(d.Context())
	due, err := time.Parse(time.RFC3339, root.Annotations[wellknown.AnnotationNextSweep])
	if wait := time.Until(due); err != nil || wait < 0 || wait > wellknown.DefaultProvisionBackoff {
		t.Errorf("the next sweep is in %s, error %v", wait, err)
	}
	d.sweepAt(time.Now())
	d.awaitAllGone(claim)
	d.AwaitJobsUsed()
	sweeps := namesOf(d.jobs(d.Context(), mountjobs.Sweep, d.fileSystem))
	if want := "efs-sweep-" + d.fileSystem + "-00002"; !slices.Contains(sweeps, want) || len(sweeps) > 3 {
		t.Errorf("sweeps %q, want %s to be the last, or the last but one", sweeps, want)
	}
}

// sweepAt has the next sweep at another time than the manager wrote down.
func (d *drill) sweepAt(at time.Time) {
	d.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wellknown.AnnotationNextSweep, at.UTC().Format(time.RFC3339))
	_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Namespace).Patch(d.Context(), volumes.RootName(d.fileSystem), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	d.check(err)
}

// whileLooking is how long directories are kept, so that a test has time to see that they are.
const whileLooking = 30 * time.Second

// TestJobsSweepWhatIsKept has a directory stay in the trash for the time that its class says,
// which a restart of the manager does not forget.
func TestJobsSweepWhatIsKept(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.class = d.NewClass("keeping", keeping(whileLooking.String())).Name
	first := d.start(nil)
	claim := d.claim("data")
	d.awaitBound(claim)
	deleted := time.Now()
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	d.Eventually("the root claim has the time", func(ctx context.Context) error {
		if d.rootClaim(ctx).Annotations[wellknown.AnnotationNextSweep] == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	d.AwaitJobsUsed()
	first.halt()
	if left := d.trash(d.fileSystem); len(left) == 0 && time.Since(deleted) < whileLooking {
		t.Error("nothing was kept")
	}
	d.start(nil)
	d.awaitAllGone(claim)
	d.AwaitJobsUsed()
}

// TestJobsSweepWhatIsKeptWhenTheRootClaimIsMadeAgain has the root claim go, which knew the time.
func TestJobsSweepWhatIsKeptWhenTheRootClaimIsMadeAgain(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.class = d.NewClass("keeping", keeping(whileLooking.String())).Name
	d.start(nil)
	claim := d.claim("data")
	d.awaitBound(claim)
	deleted := time.Now()
	d.deleteClaim(claim)
	d.AwaitVolumeGone(claim)
	d.Eventually("the trash has a time", func(ctx context.Context) error {
		if d.rootClaim(ctx).Annotations[wellknown.AnnotationNextSweep] == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	d.AwaitJobsUsed()
	d.awaitOtherRootClaim()
	if left := d.trash(d.fileSystem); len(left) == 0 && time.Since(deleted) < whileLooking {
		t.Error("nothing was kept")
	}
	d.awaitAllGone(claim)
}
