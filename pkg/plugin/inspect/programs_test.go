package inspect

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestPodProblem(t *testing.T) {
	condition := func(kind corev1.PodConditionType, status corev1.ConditionStatus, message string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, Message: message}
	}
	container := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "sidecar", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}, {Name: "agent", State: state}}
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: "no table"}}
	}
	notReady := condition(corev1.PodReady, corev1.ConditionFalse, "containers with unready status: [agent]")
	crashed := container(waiting("CrashLoopBackOff", ""))
	crashed[1].LastTerminationState = ended(1)
	tests := map[string]struct {
		status  corev1.PodStatus
		deleted bool
		want    string
	}{
		"ready":          {corev1.PodStatus{Conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionTrue, "")}}, false, ""},
		"deleted":        {corev1.PodStatus{Conditions: []corev1.PodCondition{notReady}}, true, ""},
		"not ready":      {corev1.PodStatus{Conditions: []corev1.PodCondition{condition(corev1.PodScheduled, corev1.ConditionTrue, "x"), notReady}}, false, notReady.Message},
		"no node":        {corev1.PodStatus{Conditions: []corev1.PodCondition{notReady, condition(corev1.PodScheduled, corev1.ConditionFalse, "0/2 nodes")}}, false, "no node takes it: 0/2 nodes"},
		"no image":       {corev1.PodStatus{ContainerStatuses: container(waiting("ErrImagePull", "not found"))}, false, "container agent waits: ErrImagePull: not found"},
		"is created":     {corev1.PodStatus{ContainerStatuses: container(waiting("ContainerCreating", "")), Conditions: []corev1.PodCondition{notReady}}, false, notReady.Message},
		"waits for init": {corev1.PodStatus{ContainerStatuses: container(waiting("PodInitializing", "")), Conditions: []corev1.PodCondition{notReady}}, false, notReady.Message},
		"crashes":        {corev1.PodStatus{ContainerStatuses: crashed}, false, "container agent waits: CrashLoopBackOff: no table"},
		"ended":          {corev1.PodStatus{ContainerStatuses: container(ended(1))}, false, "container agent ended: Error: no table"},
		"ended well":     {corev1.PodStatus{ContainerStatuses: container(ended(0))}, false, "it is not ready"},
		"evicted":        {corev1.PodStatus{Message: "The node was low on memory"}, false, "The node was low on memory"},
		"init ended":     {corev1.PodStatus{InitContainerStatuses: container(ended(2))}, false, "container agent ended: Error: no table"},
		"says nothing":   {corev1.PodStatus{Conditions: []corev1.PodCondition{condition(corev1.PodReady, corev1.ConditionFalse, "")}}, false, "it is not ready"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: tt.status}
			if tt.deleted {
				deleted := ago(0)
				pod.DeletionTimestamp = &deleted
			}
			if got := PodProblem(pod); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestManagerNamesItsPod: one that does not start is why no replica is ready.
func TestManagerNamesItsPod(t *testing.T) {
	s := healthy(t)
	s.Manager.Status.ReadyReplicas = 0
	pod := &corev1.Pod{Status: corev1.PodStatus{Message: "Evicted"}}
	pod.Name, pod.Labels = "efs-manager-1", map[string]string{wellknown.LabelProgram: wellknown.ProgramManager}
	s.Pods = append(s.Pods, pod)
	results := derive(s).checkManager()
	if want := "no replica is ready; mounted volumes continue: pod efs-manager-1: Evicted"; results[0].Message != want {
		t.Errorf("%q, want %q", results[0].Message, want)
	}
}

func TestVersionOf(t *testing.T) {
	for image, want := range map[string]string{
		"efs-manager:1.2":                               "1.2",
		"registry.example.com:5000/efs-manager":         "latest",
		"registry.example.com:5000/a/efs-manager:1.2":   "1.2",
		"registry.example.com/efs-manager:1.2@sha256:0": "sha256:0",
	} {
		if got := versionOf(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
