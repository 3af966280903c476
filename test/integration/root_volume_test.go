//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// TestRootVolumeIsRepaired: claims of tenants request it all the time and never get it.
func TestRootVolumeIsRepaired(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*fixture, *manager){
		"claim deleted":            func(f *fixture, _ *manager) { f.deleteRootClaim() },
		"volume and claim deleted": func(f *fixture, _ *manager) { f.deleteRootClaim(); f.deleteRootVolume() },
		"claim replaced":           (*fixture).replaceRootClaim,
		"claimed by a tenant":      (*fixture).claimRootVolume,
		"without the claim's uid": func(f *fixture, _ *manager) {
			f.patchRootVolume(`{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
		},
		"with another port": func(f *fixture, _ *manager) {
			f.patchRootVolume(`{"spec":{"mountOptions":["vers=4.1","port=20999"]}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tenants := f.claimsForRootVolume("early")
			m := f.startManager(nil)
			f.waitForBound(f.createClaim("before"))
			tenants = append(tenants, f.claimsForRootVolume("late")...)
			damage(f, m)
			f.waitForBound(f.createClaim("after"))
			f.waitForHealthyRoot()
			for _, claim := range tenants {
				if now := f.getClaim(claim); now.Status.Phase != corev1.ClaimPending || now.Spec.VolumeName != claim.Spec.VolumeName {
					t.Errorf("claim %s is %s, with volume %q\n%s", claim.Name, now.Status.Phase, now.Spec.VolumeName, f.Dump())
				}
			}
		})
	}
}

// claimsForRootVolume request the root volume by its name, by its class, and by both.
func (f *fixture) claimsForRootVolume(when string) []*corev1.PersistentVolumeClaim {
	f.Helper()
	root := volumes.RootName(f.fileSystem)
	create := func(name, class, volume string) *corev1.PersistentVolumeClaim {
		return f.NewClaim(when+"-"+name, class, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = volume })
	}
	return []*corev1.PersistentVolumeClaim{
		create("by-name", "", root),
		create("by-class", wellknown.RootStorageClass, ""),
		create("by-both", wellknown.RootStorageClass, root),
		create("by-our-class", f.class, root),
	}
}

func (f *fixture) waitForHealthyRoot() {
	f.Helper()
	f.Eventually("the root volume needs no correction", func(ctx context.Context) error {
		table, err := f.Table(ctx)
		if err != nil {
			return err
		}
		name := volumes.RootName(f.fileSystem)
		pair := volumes.RootPair{FileSystemID: f.fileSystem, Port: table.Targets[f.fileSystem].Port, Namespace: f.Namespace}
		if pair.Volume, err = f.volumes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pair.Claim, err = f.claims(f.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if why := pair.Ready(); why != "" {
			return fmt.Errorf("it is not ready: %s", why)
		}
		if !slices.Contains(pair.Volume.Spec.MountOptions, "lookupcache=none") {
			return fmt.Errorf("mount options %q", pair.Volume.Spec.MountOptions)
		}
		return nil
	})
}

func (f *fixture) deleteRootClaim() {
	f.Helper()
	f.check(f.claims(f.Namespace).Delete(f.Context(), volumes.RootName(f.fileSystem), metav1.DeleteOptions{}))
}

func (f *fixture) deleteRootVolume() { f.deleteVolume(volumes.RootName(f.fileSystem)) }

func (f *fixture) patchRootVolume(patch string) { f.patchVolume(volumes.RootName(f.fileSystem), patch) }

// replaceRootClaim leaves the volume with the uid of a claim that was deleted while no manager ran.
func (f *fixture) replaceRootClaim(m *manager) {
	f.Helper()
	m.halt()
	f.deleteJobs()
	root := f.rootClaim(f.Context())
	f.deleteRootClaim()
	f.waitForClaimDeleted(root)
	_, again := volumes.RootObjects(f.fileSystem, 0, f.Namespace)
	_, err := f.claims(f.Namespace).Create(f.Context(), again, metav1.CreateOptions{})
	f.check(err)
	f.waitForPhase(root.Name, corev1.VolumeReleased)
	f.startManager(nil)
}

// deleteJobs deletes the mount Jobs, whose pods hold the root claim.
func (f *fixture) deleteJobs() {
	f.Helper()
	for _, job := range f.mountJobs() {
		f.patchJob(&job, `{"metadata":{"finalizers":null}}`)
		background := metav1.DeletePropagationBackground
		err := f.Client.BatchV1().Jobs(f.Namespace).Delete(f.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &background})
		if !apierrors.IsNotFound(err) {
			f.check(err)
		}
	}
}

// claimRootVolume reserves the root volume for a tenant's claim while no manager runs.
func (f *fixture) claimRootVolume(m *manager) {
	f.Helper()
	m.halt()
	f.patchRootVolume(fmt.Sprintf(`{"spec":{"claimRef":{"namespace":%q,"name":"tenant","uid":null,"resourceVersion":null}}}`, f.Team))
	f.startManager(nil)
}

// TestLostRootClaimIsReplacedWhileAPodWaitsForIt: the pod is on a node, which keeps the claim, and whose kubelet has not
// found the volume before.
func TestLostRootClaimIsReplacedWhileAPodWaitsForIt(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	seen := make(chan struct{})
	f.Kubelet.QueueBehavior(kubelet.Behavior{Seen: seen})
	claim := f.createClaim("data")
	f.Eventually("a pod is on a node", func(ctx context.Context) error {
		pods, err := f.Client.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel})
		if err == nil && !slices.ContainsFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" }) {
			err = fmt.Errorf("of %d pods none is", len(pods.Items))
		}
		return err
	})
	f.patchRootVolume(`{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	f.Eventually("the root claim is Lost", func(ctx context.Context) error {
		if phase := f.rootClaim(ctx).Status.Phase; phase != corev1.ClaimLost {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	close(seen)
	f.waitForBound(claim)
	f.waitForHealthyRoot()
}

// TestDeletedRootClaimIsReplacedWhileAJobWaitsForASweep: the sweep needs a root claim, the deleted claim
// waits for the Job's pod, and the Job for the sweep.
func TestDeletedRootClaimIsReplacedWhileAJobWaitsForASweep(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t, func(o *loops.Options) { o.PollingInterval, o.SweepDelay = 200*time.Millisecond, 5*time.Second })
	claim := f.createClaim("data")
	f.waitForBound(claim)
	f.deleteClaims(claim)
	f.WaitForVolumeDeleted(claim)
	before := f.rootClaim(t.Context())
	f.deleteRootClaim()
	f.Eventually("there is another root claim", func(ctx context.Context) error {
		now, err := f.claims(f.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err == nil && (now.UID == before.UID || now.Status.Phase != corev1.ClaimBound) {
			err = fmt.Errorf("it is %s, deleted at %v", now.Status.Phase, now.DeletionTimestamp)
		}
		return err
	})
	f.waitForEmptyTrash()
	f.WaitForJobsReleased()
}
