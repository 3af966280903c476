//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// TestTwoLeadersProvisionEachClaimOnce: two managers act as the leader all the time.
func TestTwoLeadersProvisionEachClaimOnce(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	f.startManager(nil)
	f.WaitForRootClaim(f.fileSystem)
	claims := f.createClaims(50)
	f.waitForBound(claims...)
	f.expectVolumes(claims...)
	f.expectFewEvents(claims, 6)
	f.deleteClaims(claims...)
	f.waitForCleanupAndSweep(claims...)
	f.WaitForJobsReleased()
	if found := f.provisionedVolumes(t.Context()); len(found) > 0 {
		t.Errorf("%d volumes are left", len(found))
	}
	for _, job := range f.mountJobs() {
		if job.Status.Failed > 0 {
			t.Errorf("Job %s has failed\n%s", job.Name, f.Dump())
		}
	}
}

// expectFewEvents expects no more than so many events of the manager on each claim.
func (f *fixture) expectFewEvents(claims []*corev1.PersistentVolumeClaim, each int32) {
	f.Helper()
	count := map[types.UID]int32{}
	found, err := f.Client.CoreV1().Events(f.Team).List(f.Context(), metav1.ListOptions{})
	f.check(err)
	for _, event := range found.Items {
		if event.Source.Component == wellknown.ManagerDeployment {
			count[event.InvolvedObject.UID] += event.Count
		}
	}
	for _, claim := range claims {
		if count[claim.UID] > each {
			f.Errorf("claim %s has %d events of the manager", claim.Name, count[claim.UID])
		}
	}
}

// TestStandbyWithStaleCachesWritesNothing: before it has seen the deletion of a claim, it must not act
// on it as the leader.
func TestStandbyWithStaleCachesWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first := f.startManager(nil)
	kept := f.createClaim("kept")
	f.waitForBound(kept)
	first.halt()
	b := newWatchBlocker()
	standby := f.startStandby(b)
	deleted := f.createClaim("deleted")
	f.Eventually("the standby has received the claim", func(context.Context) error {
		return b.wantReceived(string(deleted.UID), wellknown.AnnotationStorageProvisioner, f.Provisioner)
	})
	b.block("")

	second := f.startManager(nil)
	f.waitForBound(deleted)
	f.deleteClaims(deleted)
	f.WaitForVolumeDeleted(deleted)
	f.waitForEmptyTrash()
	f.expectVolumes(kept)
	f.WaitForJobsReleased()
	second.halt()
	jobs := len(f.mountJobs())

	standby.lead()
	f.Eventually("the standby lists the claims", func(context.Context) error { return b.wantGet("/api/v1/persistentvolumeclaims") })
	late := f.createClaim("late")
	f.waitForRequests(2)
	if writes := standby.point.Writes(); len(writes) > 0 {
		t.Errorf("with stale caches, it wrote %q", writes)
	}
	b.unblock()
	f.waitForBound(late)
	if more := len(f.mountJobs()) - jobs; more != 1 {
		t.Errorf("%d more Jobs for one claim\n%s", more, f.Dump())
	}
	f.expectVolumes(kept, late)
}

// TestLeaderWithAStaleCacheReadsLiveFirst: before a decision by which data or an object could be lost.
func TestLeaderWithAStaleCacheReadsLiveFirst(t *testing.T) {
	t.Parallel()
	t.Run("released volume is retained", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		b := newWatchBlocker()
		f.startStandby(b).lead()
		claim := f.createClaim("data", withVolumeName("data"))
		volume := f.waitForBound(claim)
		g := newGate()
		f.Kubelet.QueueBehavior(g.behavior())
		busy := f.createClaim("busy") // the cleanup waits for its Job
		f.waitForGate(g)
		f.deleteClaims(claim)
		f.waitForReleased(claim)
		f.Eventually("the manager has received that the volume is Released", func(context.Context) error {
			return b.wantReceived(volume.Name, `"phase":"Released"`)
		})
		b.block("/persistentvolumes")
		f.setReclaimPolicy(volume.Name, corev1.PersistentVolumeReclaimRetain)
		close(g.open)
		f.waitForBound(busy)
		f.waitForBound(f.createClaim("next"))
		f.expectNoOperation(operations.Cleanup, volume.Name)
		if !f.Exists(f.fileSystem, f.Team+"/data") {
			t.Errorf("the directory is removed\n%s", f.Dump())
		}
		b.unblock()
	})
	t.Run("claim is deleted", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		b := newWatchBlocker()
		f.startStandby(b).lead()
		g := newGate()
		f.Kubelet.QueueBehavior(g.behavior())
		claim := f.createClaim("data", withVolumeName("data"))
		f.waitForGate(g)
		b.block("/persistentvolumeclaims")
		f.deleteClaims(claim)
		f.waitForClaimDeleted(claim)
		close(g.open)
		f.Eventually("the manager reads the claim live", func(context.Context) error {
			return b.wantGet("/namespaces/" + f.Team + "/persistentvolumeclaims/data")
		})
		if found := f.provisionedVolumes(t.Context()); len(found) > 0 {
			t.Errorf("it created %s for a claim that is deleted", found[0].Name)
		}
		b.unblock()
		f.Eventually("the directory is removed", func(context.Context) error {
			if left := f.names(f.Team); len(left) > 0 {
				return fmt.Errorf("directories %q are left", left)
			}
			return nil
		})
		f.waitForCleanupAndSweep(claim)
		f.WaitForJobsReleased()
	})
}

// TestClaimsOfADeletedNamespaceAreCleanedUp: one is bound, one is being provisioned, and one is
// refused. Events cannot be written there any more.
func TestClaimsOfADeletedNamespaceAreCleanedUp(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	namespace := f.Named("deleted")
	f.NewNamespace(namespace)
	there := func(claim *corev1.PersistentVolumeClaim) { claim.Namespace = namespace }
	bound, stays := f.createClaim("bound", there), f.createClaim("stays")
	f.waitForBound(bound, stays)
	g := newGate()
	f.Kubelet.QueueBehavior(g.behavior())
	half := f.createClaim("half", there)
	f.waitForGate(g)
	refused := f.createClaim("refused", there, withVolumeName("No.Good"))
	f.check(f.Client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	for _, claim := range []*corev1.PersistentVolumeClaim{bound, half, refused} {
		f.waitForClaimDeleted(claim)
	}
	close(g.open)
	f.WaitForVolumeDeleted(bound)
	f.Eventually("nothing is left of the namespace", func(ctx context.Context) error {
		if left := f.names(namespace); len(left) > 0 {
			return fmt.Errorf("directories %q", left)
		}
		if found := f.provisionedVolumes(ctx); len(found) != 1 || found[0].Name != volumes.VolumeName(stays.UID) {
			return fmt.Errorf("%d volumes", len(found))
		}
		return nil
	})
	f.WaitForJobsReleased()
	f.expectVolumes(stays)
	f.waitForBound(f.createClaim("after"))
}

// TestSetupOfADeletedClaimIsCleanedUpByTheNextLeader: the setup ends, and the claim is deleted, while
// there is no leader. The next one observes both before it knows any file system.
func TestSetupOfADeletedClaimIsCleanedUpByTheNextLeader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	g := newGate()
	f.Kubelet.QueueBehavior(g.behavior())
	first := f.startManager(nil)
	claim := f.createClaim("data")
	f.waitForGate(g)
	first.halt()
	f.deleteClaims(claim)
	close(g.open)
	f.Eventually("the Job is complete", func(ctx context.Context) error {
		if jobs := f.jobs(ctx, mountjobs.Mount, f.fileSystem); jobs[0].Status.CompletionTime == nil {
			return fmt.Errorf("%s is not", jobs[0].Name)
		}
		return nil
	})
	f.startManager(nil)
	f.WaitForJobsReleased()
	f.WaitForVolumeDeleted(claim)
	f.expectNothingAt(ownDirectory(claim))
}
