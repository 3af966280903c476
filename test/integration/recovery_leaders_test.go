//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/operations"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestRecoveryWithTwoLeaders has two managers believe that they lead, all the time.
func TestRecoveryWithTwoLeaders(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.start(nil)
	d.start(nil)
	d.AwaitRoot(d.fileSystem) // claims that wait for it long are told so
	claims := d.crowd(50, func(int) string { return d.fileSystem })
	d.awaitBound(claims...)
	d.wantVolumes(claims...)
	d.wantCalm(claims, 6)
	for _, claim := range claims {
		d.deleteClaim(claim)
	}
	d.awaitAllGone(claims...)
	d.AwaitJobsUsed()
	if found := d.provisioned(d.Context()); len(found) > 0 {
		t.Errorf("%d volumes are left", len(found))
	}
	for _, job := range d.mountJobs() {
		if job.Status.Failed > 0 {
			t.Errorf("Job %s has failed\n%s", job.Name, d.Story())
		}
	}
}

// wantCalm wants no more than so many events for each claim, on claims and volumes together.
func (d *drill) wantCalm(claims []*corev1.PersistentVolumeClaim, each int32) {
	d.Helper()
	count := map[types.UID]int32{}
	for _, namespace := range []string{d.Team, metav1.NamespaceDefault} {
		found, err := d.Client.CoreV1().Events(namespace).List(d.Context(), metav1.ListOptions{})
		d.check(err)
		for _, event := range found.Items {
			if event.Source.Component == wellknown.ManagerDeployment {
				count[event.InvolvedObject.UID] += event.Count
			}
		}
	}
	for _, claim := range claims {
		if count[claim.UID] > each {
			d.Errorf("claim %s has %d events of the manager's", claim.Name, count[claim.UID])
		}
	}
}

// TestRecoveryOfAStandbyThatWasCutOff has a standby become the leader that remembers a claim of
// long ago: it must not act before it has seen what is.
func TestRecoveryOfAStandbyThatWasCutOff(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	first := d.start(nil)
	kept := d.claim("kept")
	d.awaitBound(kept)
	first.halt()
	v := newValve()
	standby := d.startBehind(v)
	gone := d.claim("gone")
	d.Eventually("the standby has heard of the claim", func(context.Context) error {
		return v.heard(string(gone.UID), wellknown.AnnotationStorageProvisioner, d.Provisioner)
	})
	v.shut("")

	second := d.start(nil)
	d.awaitBound(gone)
	d.deleteClaim(gone)
	d.AwaitVolumeGone(gone)
	d.awaitAllGoneBut(kept)
	d.AwaitJobsUsed()
	second.halt()
	jobs := len(d.mountJobs())

	standby.lead()
	d.Eventually("the standby asks what is", func(context.Context) error { return v.asked("/api/v1/persistentvolumeclaims") })
	late := d.claim("late")
	d.awaitAsked(2)
	if writes := standby.point.Writes(); len(writes) > 0 {
		t.Errorf("behind the world, it wrote %q", writes)
	}
	v.open()
	d.awaitBound(late)
	if more := len(d.mountJobs()) - jobs; more != 1 {
		t.Errorf("%d more Jobs for one claim\n%s", more, d.Story())
	}
	d.wantVolumes(kept, late)
}

// awaitAllGoneBut wants the trash swept, and only some claims' volumes left.
func (d *drill) awaitAllGoneBut(claims ...*corev1.PersistentVolumeClaim) {
	d.Helper()
	d.Eventually("the trash is empty", func(context.Context) error {
		if left := d.trash(d.fileSystem); len(left) > 0 {
			return fmt.Errorf("it has %q", left)
		}
		return nil
	})
	d.wantVolumes(claims...)
}

// TestRecoveryOfALeaderThatSeesThePast cuts single watches of a manager that leads. What it
// decides from caches that are behind, it must look at live before anything is lost by it.
func TestRecoveryOfALeaderThatSeesThePast(t *testing.T) {
	t.Parallel()
	t.Run("a volume is to be kept", func(t *testing.T) {
		t.Parallel()
		d := newDrill(t)
		v := newValve()
		d.startBehind(v).lead()
		claim := d.claim("data", withVolumeName("data"))
		object := d.awaitBound(claim)
		busy := d.holdUp(func() {
			d.deleteClaim(claim)
			d.awaitReleased(claim)
			d.awaitCleanupWanted(v, object)
			d.patchPolicy(object.Name, corev1.PersistentVolumeReclaimRetain)
		})
		d.awaitBound(busy)
		next := d.claim("next")
		d.awaitBound(next)
		d.wantNoOperation(operations.Cleanup, object.Name)
		if !d.Exists(d.fileSystem, d.Team+"/data") {
			t.Errorf("the directory is gone\n%s", d.Story())
		}
		v.open()
	})
	t.Run("a claim is gone", func(t *testing.T) {
		t.Parallel()
		d := newDrill(t)
		v := newValve()
		d.startBehind(v).lead()
		g := newGate()
		d.Kubelet.PlayNext(g.fate())
		claim := d.claim("data", withVolumeName("data"))
		d.await(g)
		v.shut("/persistentvolumeclaims")
		d.deleteClaim(claim)
		d.awaitGone("the claim", func(ctx context.Context) error {
			_, err := d.Client.CoreV1().PersistentVolumeClaims(d.Team).Get(ctx, claim.Name, metav1.GetOptions{})
			return err
		})
		close(g.open)
		d.awaitRefusedCreation(v)
		if found := d.provisioned(d.Context()); len(found) > 0 {
			t.Errorf("it made %s for a claim that is gone", found[0].Name)
		}
		v.open()
		d.Eventually("what was begun is ended", func(context.Context) error {
			if left := d.names(d.fileSystem, d.Team); len(left) > 0 {
				return fmt.Errorf("directories %q are left", left)
			}
			return nil
		})
		d.awaitAllGone(claim)
		d.AwaitJobsUsed()
	})
}

// holdUp has things happen while a Job runs, for a claim that is returned.
func (d *drill) holdUp(while func()) *corev1.PersistentVolumeClaim {
	d.Helper()
	g := newGate()
	d.Kubelet.PlayNext(g.fate())
	busy := d.claim("busy")
	d.await(g)
	while()
	close(g.open)
	return busy
}

// awaitCleanupWanted shuts the watch of volumes once the Released one has come through it. Of
// what the manager sees nothing can be asked, but that a watch has delivered can.
func (d *drill) awaitCleanupWanted(v *valve, object *corev1.PersistentVolume) {
	d.Helper()
	d.Eventually("the manager has heard that the volume is Released", func(context.Context) error {
		return v.heard(object.Name, `"phase":"Released"`)
	})
	v.shut("/persistentvolumes")
}

// awaitRefusedCreation waits until the manager has asked for the claim itself, and so has
// learnt that it is gone.
func (d *drill) awaitRefusedCreation(v *valve) {
	d.Helper()
	d.Eventually("the manager looks at the claim itself", func(context.Context) error {
		return v.asked("/namespaces/" + d.Team + "/persistentvolumeclaims/data")
	})
}

func (d *drill) patchPolicy(volume string, policy corev1.PersistentVolumeReclaimPolicy) {
	d.Helper()
	patch := fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)
	_, err := d.Client.CoreV1().PersistentVolumes().Patch(d.Context(), volume, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	d.check(err)
}

// wantNoOperation wants no Job to have an operation of a kind for a volume.
func (d *drill) wantNoOperation(kind operations.Kind, volume string) {
	d.Helper()
	for _, job := range d.jobs(d.Context(), mountjobs.Mount, d.fileSystem) {
		if slices.ContainsFunc(d.operations(job), func(o operations.Operation) bool { return o.Kind == kind && o.Volume == volume }) {
			d.Errorf("Job %s has a %s of %s\n%s", job.Name, kind, volume, d.Story())
		}
	}
}

// TestRecoveryOfANamespaceThatEnds has claims go with their namespace, one of them while its
// directory is being made. Events cannot be written there any more.
func TestRecoveryOfANamespaceThatEnds(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.start(nil)
	doomed := d.Named("doomed")
	d.NewNamespace(doomed)
	there := func(claim *corev1.PersistentVolumeClaim) { claim.Namespace = doomed }
	bound := d.claim("bound", there)
	d.awaitBound(bound)
	stays := d.claim("stays")
	d.awaitBound(stays)
	g := newGate()
	d.Kubelet.PlayNext(g.fate())
	half := d.claim("half", there)
	d.await(g)
	refused := d.claim("refused", there, withVolumeName("No.Good"))
	d.check(d.Client.CoreV1().Namespaces().Delete(d.Context(), doomed, metav1.DeleteOptions{}))
	for _, claim := range []*corev1.PersistentVolumeClaim{bound, half, refused} {
		d.awaitGone("claim "+claim.Name, func(ctx context.Context) error {
			_, err := d.Client.CoreV1().PersistentVolumeClaims(doomed).Get(ctx, claim.Name, metav1.GetOptions{})
			return err
		})
	}
	close(g.open)
	d.AwaitVolumeGone(bound)
	d.Eventually("nothing is left of the namespace", func(ctx context.Context) error {
		if left := d.names(d.fileSystem, doomed); len(left) > 0 {
			return fmt.Errorf("directories %q", left)
		}
		if found := d.provisioned(ctx); len(found) != 1 || found[0].Name != volumes.VolumeName(stays.UID) {
			return fmt.Errorf("%d volumes", len(found))
		}
		return nil
	})
	d.AwaitJobsUsed()
	d.wantVolumes(stays)
	after := d.claim("after")
	d.awaitBound(after)
}

// TestRecoveryOfAnAbandonedSetup has a setup end, and its claim go, while nobody leads. The next
// leader hears of that before it knows any file system, and of nothing afterwards.
func TestRecoveryOfAnAbandonedSetup(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	g := newGate()
	d.Kubelet.PlayNext(g.fate())
	first := d.start(nil)
	claim := d.claim("data")
	d.await(g)
	first.halt()
	d.deleteClaim(claim)
	close(g.open)
	d.Eventually("the Job is complete", func(ctx context.Context) error {
		if jobs := d.jobs(ctx, mountjobs.Mount, d.fileSystem); jobs[0].Status.CompletionTime == nil {
			return fmt.Errorf("%s is not", jobs[0].Name)
		}
		return nil
	})
	d.start(nil)
	d.AwaitJobsUsed()
	d.AwaitVolumeGone(claim)
	if path := ownDirectory(claim); d.Exists(d.fileSystem, path) {
		t.Errorf("%s is there\n%s", path, d.Story())
	}
}
