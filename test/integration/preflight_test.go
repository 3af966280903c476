//go:build integration

package integration_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/plugin/preflight"
)

// TestPreflightPodsAreAccepted: the test is the kubelet of their nodes.
func TestPreflightPodsAreAccepted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pods := f.Client.CoreV1().Pods(f.Namespace)
	watch, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=preflight"})
	f.check(err)
	go func() {
		for event := range watch.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || pod.Status.ContainerStatuses != nil || pod.DeletionTimestamp != nil {
				continue
			}
			pod.Status.Phase = corev1.PodSucceeded
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: `{"kernel": "6.1"}`},
			}}}
			_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}) // the prober may have deleted it
		}
	}()
	prober := preflight.Prober{Client: f.Client, Namespace: f.Namespace, Image: "efs-stunnel:test", Progress: func(string) {}}
	nodes := []*corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "preflight-1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "preflight-2"}},
	}
	reports, err := prober.Run(ctx, nodes)
	f.check(err)
	for _, node := range nodes {
		if report := reports[node.Name]; report.Why != "" || report.Kernel != "6.1" {
			t.Errorf("%s: %+v", node.Name, report)
		}
	}
	left, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=preflight"})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("%d pods are left, %v", len(left.Items), err)
	}
}
