package observe

import (
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/decide"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestAttemptsOfBatches: a volume was set up by the first batch of a Job, and is cleaned up by the second.
func TestAttemptsOfBatches(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	of := func(kind operations.Kind) []operations.Operation {
		return []operations.Operation{{Kind: kind, Path: "/team/data", Owner: operations.Owner{Volume: "pvc-1", Cluster: "c", Namespace: "team", Claim: "data", ClaimUID: "1"}}}
	}
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"}, FileSystemID: "fs-1", Number: 1, Operations: of(operations.Setup),
	})
	if err != nil {
		t.Fatal(err)
	}
	second, err := operations.EncodeBatch(operations.Batch{Number: 2, Began: now, Operations: of(operations.Cleanup)})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job", metav1.NewTime(now.Add(-time.Minute))
	job.Annotations[wellknown.AnnotationBatch(2)] = string(second)
	done := operations.Report{Results: []operations.Result{{State: operations.Done}}}

	for name, tt := range map[string]struct {
		mark         string
		reported     map[int]mountjobs.Reported
		cleanup      mountjobs.State
		setupIsNew   bool // its outcome was not used
		cleanupIsNew bool
	}{
		"the worker has the second":  {"", map[int]mountjobs.Reported{1: {Report: done, At: now}}, mountjobs.Running, true, true},
		"it has reported it":         {"", map[int]mountjobs.Reported{1: {Report: done, At: now}, 2: {Report: done, At: now}}, mountjobs.Finished, true, true},
		"the volume was made":        {"1", map[int]mountjobs.Reported{1: {Report: done, At: now}}, mountjobs.Running, false, true},
		"by an earlier manager":      {wellknown.ValueTrue, map[int]mountjobs.Reported{1: {Report: done, At: now}}, mountjobs.Running, false, true},
		"and is about to be deleted": {"2", map[int]mountjobs.Reported{1: {Report: done, At: now}, 2: {Report: done, At: now}}, mountjobs.Finished, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			marked := job.DeepCopy()
			if tt.mark != "" {
				marked.Annotations[wellknown.AnnotationUsed("pvc-1")] = tt.mark
			}
			attempts := newGatherer(t, marked, tt.reported).Attempts("pvc-1")
			if len(attempts) != 2 || attempts[0].Batch != 2 || attempts[1].Batch != 1 || attempts[0].BatchSize != 1 {
				t.Fatalf("got %+v", attempts)
			}
			cleanup, setup := attempts[0], attempts[1]
			if cleanup.State != tt.cleanup || setup.State != mountjobs.Finished || !cleanup.Began.Equal(now) || !setup.Ended.Equal(now) {
				t.Errorf("cleanup %+v, setup %+v", cleanup, setup)
			}
			if setup.Unused != tt.setupIsNew || cleanup.Unused != tt.cleanupIsNew {
				t.Errorf("unused: setup %v, cleanup %v", setup.Unused, cleanup.Unused)
			}
		})
	}
}

// TestReportThatCannotBeReadIsLoggedOnce, however often its Job is read.
func TestReportThatCannotBeReadIsLoggedOnce(t *testing.T) {
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings: mountjobs.Settings{Namespace: "efs-stunnel", Image: "image"}, FileSystemID: "fs-1", Number: 1,
		Operations: []operations.Operation{{Kind: operations.Cleanup, Path: "/team/data", Owner: operations.Owner{Volume: "pvc-1", Cluster: "c", ClaimUID: "1"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job", metav1.NewTime(time.Now().Add(-time.Minute))
	g := newGatherer(t, job, nil)
	if err := g.Caches.Pods.GetStore().Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: "pod", Labels: job.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{
			Name: mountjobs.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "half a report"}},
		}}},
	}); err != nil {
		t.Fatal(err)
	}
	var logged []string
	g.OnUnread = func(job, report string) { logged = append(logged, job+": "+report) }
	for version := range 3 {
		job.ResourceVersion = strconv.Itoa(version)
		g.Attempts("pvc-1")
	}
	if want := []string{job.Name + ": half a report"}; !slices.Equal(logged, want) {
		t.Errorf("got %q, want %q", logged, want)
	}
}

func newGatherer(t *testing.T, job *batchv1.Job, reported map[int]mountjobs.Reported) *Gatherer {
	t.Helper()
	c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(decide.Settings{Provisioner: wellknown.DefaultProvisioner}, c, func() targets.Snapshot { return targets.Snapshot{} })
	if err != nil {
		t.Fatal(err)
	}
	g.Reported = func(types.UID) map[int]mountjobs.Reported { return reported }
	if err := c.Jobs.GetStore().Add(job); err != nil {
		t.Fatal(err)
	}
	return g
}
