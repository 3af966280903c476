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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/loops"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// TestOperationsOfAJobThatEndsBadlyAreRepeated: all but those that are known to be done. The claims
// come while another Job runs, so one Job has the operations of all of them.
func TestOperationsOfAJobThatEndsBadlyAreRepeated(t *testing.T) {
	t.Parallel()
	const all = 4
	tests := map[string]struct {
		behavior kubelet.Behavior
		again    int  // operations of the next Job
		avoids   bool // the node of the Job that failed
	}{
		"killed in the middle":     {kubelet.Behavior{Ending: kubelet.Killed, Operations: 2}, all, true},
		"vanished with its report": {kubelet.Behavior{Ending: kubelet.Vanished, Operations: kubelet.AllOperations}, all, false},
		"terminated after a half":  {kubelet.Behavior{Ending: kubelet.Terminated, Operations: 2}, all - 2, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			g := newGate()
			f.Kubelet.QueueBehavior(g.behavior(), tt.behavior)
			f.startManager(nil)
			first := f.createClaim("first")
			f.waitForGate(g)
			claims := f.createClaims(all)
			for _, claim := range claims {
				f.waitForEvent(claim, wellknown.EventProvisioning) // the manager knows of it, so that one Job has all
			}
			close(g.open)
			claims = append(claims, first)
			f.waitForBound(claims...)
			f.expectVolumes(claims...)
			jobs, again := f.mountJobs(), map[string]bool{}
			for _, job := range jobs[min(2, len(jobs)):] { // one, unless the machine is so slow that some are tried before others
				for _, o := range f.operationsOf(job) {
					if again[o.Volume] {
						t.Errorf("the operation for volume %s is repeated twice", o.Volume)
					}
					again[o.Volume] = true
				}
			}
			if len(jobs) < 3 || len(f.operationsOf(jobs[1])) != all || len(again) != tt.again {
				t.Fatalf("Jobs %q, after the second one with operations for %d volumes\n%s", namesOf(jobs), len(again), f.Dump())
			}
			if tt.avoids {
				f.expectAvoided(jobs[2], f.Nodes[0])
			}
			f.deleteClaims(claims...)
			f.waitForCleanupAndSweep(claims...)
			f.WaitForJobsReleased()
		})
	}
}

// expectAvoided expects that a Job may not run on a node.
func (f *fixture) expectAvoided(job batchv1.Job, node string) {
	f.Helper()
	var avoided []string
	if affinity := job.Spec.Template.Spec.Affinity.NodeAffinity; affinity != nil {
		for _, field := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields {
			if field.Operator == corev1.NodeSelectorOpNotIn {
				avoided = append(avoided, field.Values...)
			}
		}
	}
	if !slices.Contains(avoided, node) {
		f.Errorf("Job %s avoids %q, and should avoid %s", job.Name, avoided, node)
	}
}

func TestHungPodThatIsDeletedDoesNotHoldItsFileSystem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	over := make(chan struct{})
	f.Kubelet.QueueBehavior(kubelet.Behavior{Ending: kubelet.Hung, Until: over})
	f.startManager(nil)
	claim := f.createClaim("data")
	var pod *corev1.Pod
	f.Eventually("the pod runs", func(ctx context.Context) error {
		jobs := f.jobs(ctx, mountjobs.Mount, f.fileSystem)
		if len(jobs) == 0 {
			return fmt.Errorf("there is no Job")
		}
		var err error
		if pod, err = f.podOf(ctx, jobs[0].Name); err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	second := int64(1)
	f.check(f.Client.CoreV1().Pods(f.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &second}))
	f.waitForBound(claim)
	if _, err := f.Client.CoreV1().Pods(f.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the hung pod should still exist: %v", err)
	}
	f.expectAvoided(f.mountJobs()[1], f.Nodes[0])
	close(over)
	f.expectVolumes(claim)
	f.deleteClaims(claim)
	f.waitForCleanupAndSweep(claim)
	f.WaitForJobsReleased()
}

// TestClaimIsProvisionedThoughItsJobIsChanged: a running Job is deleted or edited by another client,
// and a Job that is not the manager's has the name of the first one.
func TestClaimIsProvisionedThoughItsJobIsChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fixture, *batchv1.Job){
		"deleted in the background": func(f *fixture, job *batchv1.Job) { f.deleteJob(job, metav1.DeletePropagationBackground) },
		"deleted in the foreground": func(f *fixture, job *batchv1.Job) { f.deleteJob(job, metav1.DeletePropagationForeground) },
		"deleted without its pods":  func(f *fixture, job *batchv1.Job) { f.deleteJob(job, metav1.DeletePropagationOrphan) },
		"without its finalizer":     func(f *fixture, job *batchv1.Job) { f.patchJob(job, `{"metadata":{"finalizers":null}}`) },
		"without its labels":        func(f *fixture, job *batchv1.Job) { f.patchJob(job, `{"metadata":{"labels":null}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.createForeignJob("efs-mount-" + f.fileSystem + "-00007")
			g := newGate()
			f.Kubelet.QueueBehavior(g.behavior())
			f.startManager(nil)
			claim := f.createClaim("data")
			f.waitForGate(g)
			job := f.mountJobs()[0]
			if want := "efs-mount-" + f.fileSystem + "-00008"; job.Name != want {
				t.Errorf("the first Job is %s, want %s", job.Name, want)
			}
			change(f, &job)
			close(g.open)
			f.waitForBound(claim)
			f.expectVolumes(claim)
			f.deleteClaims(claim)
			f.waitForCleanupAndSweep(claim)
		})
	}
}

// createForeignJob creates a Job that does nothing and is not the manager's.
func (f *fixture) createForeignJob(name string) {
	f.Helper()
	yes := true
	_, err := f.Client.BatchV1().Jobs(f.Namespace).Create(f.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Suspend: &yes, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "foreign", Image: "foreign"}},
		}}},
	}, metav1.CreateOptions{})
	f.check(err)
}

// TestVolumeDeletedByHandIsNotCreatedAgain: its Job still has the outcome of its setup, because it
// waits for a sweep after the cleanup that it also carried.
func TestVolumeDeletedByHandIsNotCreatedAgain(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t, func(o *loops.Options) { o.SweepDelay = time.Hour })
	kept, volume := f.provisionBesideCleanup()
	f.writeFile(volume.Spec.NFS.Path)
	f.setReclaimPolicy(volume.Name, corev1.PersistentVolumeReclaimRetain)
	f.waitForFinalizer(volume.Name)
	f.deleteClaims(kept)
	f.waitForReleased(kept)
	f.deleteVolume(volume.Name)
	f.WaitForVolumeDeleted(kept)
	f.waitForBound(f.createClaim("next"))
	_, err := f.volumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
	if err := testenv.WantNotFound(err); err != nil {
		t.Errorf("the volume that was deleted: %v", err)
	}
	f.expectFile(volume.Spec.NFS.Path)
}

// provisionBesideCleanup has a claim's setup and another claim's cleanup wait while a Job runs, so that
// the next Job carries both.
func (f *fixture) provisionBesideCleanup() (claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	f.Helper()
	deleted := f.createClaim("deleted")
	f.waitForBound(deleted)
	g := newGate()
	f.Kubelet.QueueBehavior(g.behavior())
	busy := f.createClaim("busy")
	f.waitForGate(g)
	f.deleteClaims(deleted)
	claim = f.createClaim("data")
	f.waitForRequests(2)
	f.waitForReleased(deleted)
	close(g.open)
	volume = f.waitForBound(busy, claim)
	f.WaitForVolumeDeleted(deleted)
	return claim, volume
}
