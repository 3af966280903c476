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

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

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
