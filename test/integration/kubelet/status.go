package kubelet

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// patchStatus writes as kubelet does: a patch that is for this very pod.
func (l *life) patchStatus(status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": l.pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	_, err = l.options.Client.CoreV1().Pods(l.options.Namespace).Patch(l.exists, l.pod.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (l *life) withContainer(phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
	started := state.Running != nil
	return corev1.PodStatus{
		Phase: phase,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: mountjobs.ContainerName, Image: l.pod.Spec.Containers[0].Image,
			State: state, Ready: started, Started: &started,
		}},
	}
}

func (l *life) creating(state corev1.ContainerState) corev1.PodStatus {
	status := l.withContainer(corev1.PodPending, state)
	now := metav1.Now()
	status.StartTime = &now
	return status
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func running(since time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
}

// ended is the status of a pod whose only container has ended.
func (l *life) ended(since time.Time, code int32, message string) corev1.PodStatus {
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	return l.withContainer(phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message,
		StartedAt: metav1.NewTime(since), FinishedAt: metav1.Now(),
	}})
}

func (l *life) blameDeadline(status *corev1.PodStatus) {
	status.Reason = "DeadlineExceeded"
	status.Message = "Pod was active on the node longer than the specified deadline"
}

// event is one about the pod.
func (l *life) event(kind, reason, message string) error {
	now := metav1.Now()
	source := "kubelet"
	if l.node == "" {
		source = "default-scheduler"
	}
	_, err := l.options.Client.CoreV1().Events(l.options.Namespace).Create(l.exists, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: l.pod.Name + ".", Namespace: l.options.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: l.pod.Namespace, Name: l.pod.Name, UID: l.pod.UID,
		},
		Type: kind, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: source, Host: l.node},
	}, metav1.CreateOptions{})
	return err
}

// remove ends the pod object at once, as a kubelet does when nothing of the pod runs any more.
func (l *life) remove() error {
	now := int64(0)
	return l.options.Client.CoreV1().Pods(l.options.Namespace).Delete(l.exists, l.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &l.pod.UID},
	})
}
