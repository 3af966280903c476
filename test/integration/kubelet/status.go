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

// patchStatus patches the status of the pod with this uid, as the kubelet does.
func (p *pod) patchStatus(status corev1.PodStatus) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encoding a status: %w", err)
	}
	_, err = p.options.Client.CoreV1().Pods(p.options.Namespace).Patch(p.exists, p.object.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func (p *pod) withContainer(phase corev1.PodPhase, state corev1.ContainerState) corev1.PodStatus {
	started := state.Running != nil
	return corev1.PodStatus{
		Phase: phase,
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: mountjobs.ContainerName, Image: p.object.Spec.Containers[0].Image,
			State: state, Ready: started, Started: &started,
		}},
	}
}

func (p *pod) creating(state corev1.ContainerState) corev1.PodStatus {
	status := p.withContainer(corev1.PodPending, state)
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

// ended returns the status of a pod whose only container has ended.
func (p *pod) ended(since time.Time, code int32, message string) corev1.PodStatus {
	phase, reason := corev1.PodSucceeded, "Completed"
	if code != 0 {
		phase, reason = corev1.PodFailed, "Error"
	}
	return p.withContainer(phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: reason, Message: message,
		StartedAt: metav1.NewTime(since), FinishedAt: metav1.Now(),
	}})
}

// event writes an event about the pod.
func (p *pod) event(kind, reason, message string) error {
	now := metav1.Now()
	source := "kubelet"
	if p.node == "" {
		source = "default-scheduler"
	}
	_, err := p.options.Client.CoreV1().Events(p.options.Namespace).Create(p.exists, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: p.object.Name + ".", Namespace: p.options.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: p.object.Namespace, Name: p.object.Name, UID: p.object.UID,
		},
		Type: kind, Reason: reason, Message: message, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: source, Host: p.node},
	}, metav1.CreateOptions{})
	return err
}

// remove deletes the pod object at once, as the kubelet does when no container runs any more.
func (p *pod) remove() error {
	now := int64(0)
	return p.options.Client.CoreV1().Pods(p.options.Namespace).Delete(p.exists, p.object.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.object.UID},
	})
}
