//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/test/integration/testenv"
)

// TestSchedulerPlacesJobsWithoutAgentOnlyInEmptyClusters: an autoscaler asks the same code whether a pod would fit on
// a node that it could add, which has no agent yet.
func TestSchedulerPlacesJobsWithoutAgentOnlyInEmptyClusters(t *testing.T) {
	t.Parallel()
	env := newEnv(t)
	name := fmt.Sprintf("new-%d", env.Number)
	env.StartScheduler(name)
	newNodeWithoutAgent(env, name)

	required := createJobsPod(env, name, false)
	env.Eventually("the scheduler finds no agent", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(env.Team).Get(ctx, required, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && strings.Contains(condition.Message, "match pod affinity rules") {
				return nil
			}
		}
		return fmt.Errorf("it is on node %q with conditions %+v", pod.Spec.NodeName, pod.Status.Conditions)
	})

	preferred := createJobsPod(env, name, true)
	env.Eventually("the scheduler takes the node", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(env.Team).Get(ctx, preferred, metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName != name {
			err = fmt.Errorf("it is on node %q with conditions %+v", pod.Spec.NodeName, pod.Status.Conditions)
		}
		return err
	})
}

// newNodeWithoutAgent creates a node with room, as an autoscaler adds it.
func newNodeWithoutAgent(env *testenv.Env, name string) {
	env.Helper()
	nodes := env.Client.CoreV1().Nodes()
	node, err := nodes.Create(env.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "pool": name},
	}}, metav1.CreateOptions{})
	check(env, err)
	env.Cleanup(func() { check(env, nodes.Delete(context.WithoutCancel(env.Context()), name, metav1.DeleteOptions{})) })
	node.Spec.Taints = nil // admission adds the taint not-ready to every new node
	node, err = nodes.Update(env.Context(), node, metav1.UpdateOptions{})
	check(env, err)
	setRoom(env, node, 10)
}

// setRoom lets a node have so many pods.
func setRoom(env *testenv.Env, node *corev1.Node, pods int64) {
	env.Helper()
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI),
	}
	node.Status.Capacity, node.Status.Allocatable = room, room
	_, err := env.Client.CoreV1().Nodes().UpdateStatus(env.Context(), node, metav1.UpdateOptions{})
	check(env, err)
}

// createJobsPod creates the pod of a mount Job, without its volumes, in a namespace without agents, and returns its
// name. Only the nodes of the pool may have it.
func createJobsPod(env *testenv.Env, pool string, noNode bool) string {
	env.Helper()
	job, err := mountjobs.Build(mountjobs.Spec{
		Settings:     mountjobs.Settings{Namespace: env.Namespace, Image: "image", NodeSelector: map[string]string{"pool": pool}},
		FileSystemID: "fs-1", Number: 1, NoNode: noNode,
		Operations: []operations.Operation{{
			Kind: operations.Setup, Path: "/team/data",
			Owner: operations.Owner{Volume: "pvc-1", Cluster: env.ClusterUID, Namespace: env.Team, Claim: "data", ClaimUID: "1"},
		}},
	})
	check(env, err)
	spec := job.Spec.Template.Spec
	spec.SchedulerName, spec.ServiceAccountName, spec.Volumes, spec.Containers[0].VolumeMounts = pool, "", nil, nil
	pods := env.Client.CoreV1().Pods(env.Team)
	var created *corev1.Pod
	env.Eventually("the namespace has its service account", func(ctx context.Context) (err error) {
		created, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "job-"}, Spec: spec}, metav1.CreateOptions{})
		return err
	})
	env.Cleanup(func() {
		check(env, pods.Delete(context.WithoutCancel(env.Context()), created.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
	return created.Name
}
