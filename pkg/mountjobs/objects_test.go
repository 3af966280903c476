package mountjobs_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

const (
	fileSystem = "fs-34a3p3"
	cluster    = "c1c1c1c1-0000-4000-8000-000000000001"
	image      = "registry.example.com/efs-stunnel:1.0"
)

// created is when every Job of the tests was made; they may run for 15 minutes and a half.
var created = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

func settings() mountjobs.Settings {
	return mountjobs.Settings{Namespace: wellknown.Namespace, Image: image}
}

// operation is the nth of its kind, each for a volume of its own.
func operation(kind operations.Kind, n int) operations.Operation {
	uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
	return operations.Operation{
		Kind: kind,
		Owner: operations.Owner{
			Volume: "pvc-" + uid, Cluster: cluster, Namespace: "team", Claim: fmt.Sprintf("data-%d", n), ClaimUID: uid,
		},
		Path: fmt.Sprintf("/team/data-%d", n),
	}
}

// newJob is a mount Job as the apiserver would give it back.
func newJob(t *testing.T, ops []operations.Operation, edits ...func(*batchv1.Job)) *batchv1.Job {
	t.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{Settings: settings(), FileSystemID: fileSystem, Number: 7, Operations: ops})
	if err != nil {
		t.Fatal(err)
	}
	job.UID, job.CreationTimestamp = "job-uid", metav1.NewTime(created)
	for _, edit := range edits {
		edit(job)
	}
	return job
}

// newPod is the Job's, running on node n1.
func newPod(job *batchv1.Job, edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: job.Name + "-abcde", UID: "pod-uid",
			CreationTimestamp: metav1.NewTime(created.Add(time.Second)),
			OwnerReferences:   []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		},
		Spec:   *job.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	pod.Spec.NodeName = "n1"
	running(pod)
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func inState(pod *corev1.Pod, state corev1.ContainerState) {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "istio-proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: mountjobs.ContainerName, State: state},
	}
}

func running(pod *corev1.Pod) {
	inState(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

func waiting(reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodPending
		inState(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
}

// ended is a pod whose container has left a termination message.
func ended(code int32, reason, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodFailed
		if code == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
		inState(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(created.Add(time.Minute)),
		}})
	}
}

func beingDeleted(until time.Time) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: until} }
}

func condition(kind batchv1.JobConditionType, reason, message string) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		})
	}
}

func event(uid types.UID, reason, message string, after time.Duration) corev1.Event {
	return corev1.Event{
		InvolvedObject: corev1.ObjectReference{UID: uid}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		LastTimestamp: metav1.NewTime(created.Add(after)),
	}
}

func podEvent(reason, message string) corev1.Event {
	return event("pod-uid", reason, message, 5*time.Second)
}
