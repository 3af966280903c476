//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

func (f *fixture) rootClaim(ctx context.Context) *corev1.PersistentVolumeClaim {
	f.Helper()
	root, err := f.claims(f.Namespace).Get(ctx, volumes.RootName(f.fileSystem), metav1.GetOptions{})
	f.check(err)
	return root
}

// waitForNextSweep waits until the root claim has the time of the next sweep.
func (f *fixture) waitForNextSweep() (at time.Time) {
	f.Helper()
	f.Eventually("the root claim has the time of the next sweep", func(ctx context.Context) (err error) {
		at, err = time.Parse(time.RFC3339, f.rootClaim(ctx).Annotations[wellknown.AnnotationNextSweep])
		return err
	})
	return at
}

// setNextSweep replaces the time that the manager has written.
func (f *fixture) setNextSweep(at time.Time) {
	f.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, wellknown.AnnotationNextSweep, at.UTC().Format(time.RFC3339))
	_, err := f.claims(f.Namespace).Patch(f.Context(), volumes.RootName(f.fileSystem), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	f.check(err)
}

// TestFailedSweepIsReportedAndRepeated: the event is on the root claim, as is the time of the next try.
func TestFailedSweepIsReportedAndRepeated(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	claim := f.createClaim("data")
	f.waitForBound(claim)
	f.Kubelet.QueueBehavior(kubelet.Behavior{}, kubelet.Behavior{Ending: kubelet.Killed})
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)
	f.waitForEvent(f.WaitForRootClaim(f.fileSystem), wellknown.EventSweepFailed, "efs-sweep-"+f.fileSystem+"-00001", "137")
	f.WaitForJobsReleased()
	if left := f.trash(); len(left) == 0 {
		t.Error("the sweep that was killed has swept")
	}
	if wait := time.Until(f.waitForNextSweep()); wait < 0 || wait > wellknown.DefaultProvisionBackoff {
		t.Errorf("the next sweep is in %s", wait)
	}
	f.setNextSweep(time.Now())
	f.waitForCleanupAndSweep(claim)
	f.WaitForJobsReleased()
	sweeps := namesOf(f.jobs(t.Context(), mountjobs.Sweep, f.fileSystem))
	if want := "efs-sweep-" + f.fileSystem + "-00002"; !slices.Contains(sweeps, want) || len(sweeps) > 3 {
		t.Errorf("sweeps %q, want %s to be the last or the last but one", sweeps, want)
	}
}

// TestKeptDirectoryIsSweptInItsTime: a restarted manager reads the time from the root claim.
func TestKeptDirectoryIsSweptInItsTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.class = f.NewClass("keeping", map[string]string{"keep_deleted": "1h"}).Name
	first := f.startManager(nil)
	claim := f.createClaim("data")
	path := f.waitForBound(claim).Spec.NFS.Path
	f.writeFile(path)
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)
	f.expectNoTrace(path)
	at := f.waitForNextSweep()
	f.WaitForJobsReleased()
	if wait := time.Until(at); wait < 50*time.Minute || wait > time.Hour+time.Minute { // the trash rounds up
		t.Errorf("the next sweep is in %s", wait)
	}
	f.expectFile(f.inTrash(volumes.VolumeName(claim.UID)))
	first.halt()
	before := len(f.jobs(t.Context(), mountjobs.Sweep, f.fileSystem))
	f.startManager(nil)
	f.setNextSweep(time.Now())
	f.Eventually("the trash is swept again", func(ctx context.Context) error {
		if sweeps := f.jobs(ctx, mountjobs.Sweep, f.fileSystem); len(sweeps) == before {
			return fmt.Errorf("the sweeps are %q", namesOf(sweeps))
		}
		return nil
	})
	f.WaitForJobsReleased()
	f.expectFile(f.inTrash(volumes.VolumeName(claim.UID))) // the file server decides when its time has come
}
