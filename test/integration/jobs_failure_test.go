//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
	"gnuthought.com/efs-stunnel/test/integration/kubelet"
)

// TestJobsThatEndBadly has the Job of four claims end in every way that is not its own. What is
// not known to be done is done again, and nothing twice.
func TestJobsThatEndBadly(t *testing.T) {
	const all = 4
	tests := map[string]struct {
		fate  kubelet.Fate
		again int  // operations of the next Job
		away  bool // from the node, which must have to do with it
	}{
		"killed at once":             {kubelet.Fate{Ending: kubelet.Killed}, all, true},
		"killed in the middle":       {kubelet.Fate{Ending: kubelet.Killed, Operations: 2}, all, true},
		"killed before its report":   {kubelet.Fate{Ending: kubelet.Killed, Operations: kubelet.AllOperations}, all, true},
		"vanished with its report":   {kubelet.Fate{Ending: kubelet.Vanished, Operations: kubelet.AllOperations}, all, false},
		"terminated after a half":    {kubelet.Fate{Ending: kubelet.Terminated, Operations: 2}, all - 2, false},
		"terminated before it began": {kubelet.Fate{Ending: kubelet.Terminated}, all, false},
		"without a mount":            {kubelet.Fate{CheckMount: true}, all, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			g := newGate()
			d.Kubelet.PlayNext(g.fate(), tt.fate)
			d.start(nil)
			first := d.claim("first")
			d.await(g)
			claims := d.crowd(all, func(int) string { return d.fileSystem })
			d.awaitAsked(all + 1)
			close(g.open)
			d.awaitBound(append(claims, first)...)
			d.wantVolumes(append(claims, first)...)
			jobs := d.mountJobs()
			if len(jobs) != 3 || len(d.operations(jobs[1])) != all || len(d.operations(jobs[2])) != tt.again {
				t.Fatalf("Jobs %q with %d operations at last\n%s", namesOf(jobs), len(d.operations(jobs[len(jobs)-1])), d.Story())
			}
			if tt.away {
				d.wantAway(jobs[2], d.Nodes[0])
			}
			for _, claim := range append(claims, first) {
				d.deleteClaim(claim)
			}
			d.awaitAllGone(append(claims, first)...)
			d.AwaitJobsUsed()
		})
	}
}

func namesOf(jobs []batchv1.Job) []string {
	var names []string
	for _, job := range jobs {
		names = append(names, job.Name)
	}
	return names
}

// wantAway wants a Job to be kept from a node.
func (d *drill) wantAway(job batchv1.Job, node string) {
	d.Helper()
	var kept []string
	if affinity := job.Spec.Template.Spec.Affinity.NodeAffinity; affinity != nil {
		for _, field := range affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields {
			if field.Operator == corev1.NodeSelectorOpNotIn {
				kept = append(kept, field.Values...)
			}
		}
	}
	if !slices.Contains(kept, node) {
		d.Errorf("Job %s is kept from %q, and should be from %s", job.Name, kept, node)
	}
}

// TestJobsGoOnWithoutAHungPod has a pod that is being deleted and does not die.
func TestJobsGoOnWithoutAHungPod(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	over := make(chan struct{})
	d.Kubelet.PlayNext(kubelet.Fate{Ending: kubelet.Hung, Until: over})
	d.start(nil)
	claim := d.claim("data")
	var pod *corev1.Pod
	d.Eventually("the pod runs", func(ctx context.Context) error {
		jobs := d.jobs(ctx, mountjobs.Mount, d.fileSystem)
		if len(jobs) == 0 {
			return fmt.Errorf("there is no Job")
		}
		var err error
		if pod, err = d.podOf(ctx, jobs[0].Name); err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
	second := int64(1)
	d.check(d.Client.CoreV1().Pods(d.Namespace).Delete(d.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &second}))
	d.awaitBound(claim)
	if _, err := d.Client.CoreV1().Pods(d.Namespace).Get(d.Context(), pod.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the hung pod should be there still: %v", err)
	}
	d.wantAway(d.mountJobs()[1], d.Nodes[0])
	close(over)
	d.wantVolumes(claim)
	d.deleteClaim(claim)
	d.awaitAllGone(claim)
	d.AwaitJobsUsed()
}

// TestJobsInStrangersHands has somebody else's hands on the Job that works, and on its name.
func TestJobsInStrangersHands(t *testing.T) {
	tests := map[string]struct {
		meddle func(*drill, *batchv1.Job)
	}{
		"deleted":           {func(d *drill, job *batchv1.Job) { d.deleteJob(job, metav1.DeletePropagationBackground) }},
		"deleted at once":   {func(d *drill, job *batchv1.Job) { d.deleteJob(job, metav1.DeletePropagationForeground) }},
		"deleted by halves": {func(d *drill, job *batchv1.Job) { d.deleteJob(job, metav1.DeletePropagationOrphan) }},
		"without operations": {func(d *drill, job *batchv1.Job) {
			d.patchJob(job, `{"metadata":{"annotations":{"`+wellknown.AnnotationOperations+`":null}}}`)
		}},
		"with others": {func(d *drill, job *batchv1.Job) {
			d.patchJob(job, `{"metadata":{"annotations":{"`+wellknown.AnnotationOperations+`":"[]"}}}`)
		}},
		"without finalizer": {func(d *drill, job *batchv1.Job) { d.patchJob(job, `{"metadata":{"finalizers":null}}`) }},
		"without labels":    {func(d *drill, job *batchv1.Job) { d.patchJob(job, `{"metadata":{"labels":null}}`) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			d.strangersJob()
			g := newGate()
			d.Kubelet.PlayNext(g.fate())
			d.start(nil)
			claim := d.claim("data")
			d.await(g)
			job := d.mountJobs()[0]
			if want := "efs-mount-" + d.fileSystem + "-00008"; job.Name != want {
				t.Errorf("the first Job is %s, want %s, after the stranger's", job.Name, want)
			}
			tt.meddle(d, &job)
			close(g.open)
			d.awaitBound(claim)
			d.wantVolumes(claim)
			d.deleteClaim(claim)
			d.awaitAllGone(claim)
		})
	}
}

// strangersJob has a name that a Job of ours could have, and does nothing.
func (d *drill) strangersJob() {
	d.Helper()
	yes := true
	_, err := d.Client.BatchV1().Jobs(d.Namespace).Create(d.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "efs-mount-" + d.fileSystem + "-00007"},
		Spec: batchv1.JobSpec{Suspend: &yes, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "strange", Image: "strange"}},
		}}},
	}, metav1.CreateOptions{})
	d.check(err)
}

func (d *drill) deleteJob(job *batchv1.Job, how metav1.DeletionPropagation) {
	d.Helper()
	d.check(d.Client.BatchV1().Jobs(d.Namespace).Delete(d.Context(), job.Name, metav1.DeleteOptions{PropagationPolicy: &how}))
}

func (d *drill) patchJob(job *batchv1.Job, patch string) {
	d.Helper()
	_, err := d.Client.BatchV1().Jobs(d.Namespace).Patch(d.Context(), job.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	d.check(err)
}
