package jobs

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/observe"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// TestAgentsWhereJobsCannotRunDoNotCount: keeping off the node that failed for the sake of such a
// one, a Job would wait until its deadline.
func TestAgentsWhereJobsCannotRunDoNotCount(t *testing.T) {
	c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
	if err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]corev1.NodeSpec{
		"free":      {},
		"cordoned":  {Unschedulable: true},
		"dedicated": {Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
	} {
		if err := c.Nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []string{"free", "cordoned", "dedicated", "not known yet"} {
		agent := readyAgent(node)
		agent.Name, agent.Labels = node, mountjobs.AgentLabels()
		if err := c.Pods.GetStore().Add(agent); err != nil {
			t.Fatal(err)
		}
	}
	agents := (&Controller{gatherer: &observe.Gatherer{Caches: c}}).agents()
	if len(agents) != 1 || agents[0].Name != "free" {
		t.Errorf("got %d agents: %+v", len(agents), agents)
	}
}

// TestJobOfAnEmptyClusterNeedsNoAgent: an autoscaler adds a node for the pod, and the agent comes with it. Where
// nodes have no agent, the Job waits for one.
func TestJobOfAnEmptyClusterNeedsNoAgent(t *testing.T) {
	full := corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}}
	for name, tt := range map[string]struct {
		nodes    map[string]corev1.NodeSpec
		required bool
	}{
		"no node":                    {nil, false},
		"none that takes Jobs":       {map[string]corev1.NodeSpec{"dedicated": full, "cordoned": {Unschedulable: true}}, false},
		"one, of which no agent has": {map[string]corev1.NodeSpec{"dedicated": full, "free": {}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := caches.New(fake.NewClientset(), nil, "efs-stunnel")
			if err != nil {
				t.Fatal(err)
			}
			for node, spec := range tt.nodes {
				if err := c.Nodes.GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: spec}); err != nil {
					t.Fatal(err)
				}
			}
			got := (&Controller{gatherer: &observe.Gatherer{Caches: c}}).hasNode()
			if got != tt.required {
				t.Errorf("hasNode = %v, want %v", got, tt.required)
			}
		})
	}
}

// TestUseOfBatches: what a batch has to wait for are those of which a volume is still to be written.
func TestUseOfBatches(t *testing.T) {
	c := newSharedPath(t, 1, 1).clusters[0]
	m := mountJob{job: mounted(1, lingers).job.DeepCopy()}
	m.job.Finalizers = []string{wellknown.FinalizerOutcome}
	m.outcome.Runs = []mountjobs.BatchRun{{Number: 1, First: 0, Count: 1}, {Number: 2, First: 1, Count: 2}}
	for _, name := range []string{"v1", "v2", "v3"} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: historyNamespace, UID: types.UID("uid-of-" + name)}}
		if err := c.gatherer.Caches.Claims.GetStore().Add(claim); err != nil {
			t.Fatal(err)
		}
		m.outcome.Operations = append(m.outcome.Operations, operations.Operation{
			Kind: operations.Setup, Owner: operations.Owner{Volume: name, Namespace: claim.Namespace, Claim: name, ClaimUID: string(claim.UID)},
		})
		m.outcome.Report.Results = append(m.outcome.Report.Results, operations.Result{State: operations.Done})
	}
	for _, step := range []struct {
		volume string
		used   []int
		unused int
	}{{"v1", []int{1}, 2}, {"v2", []int{1}, 2}, {"v3", []int{1, 2}, 0}} {
		if err := c.gatherer.Caches.Volumes.GetStore().Add(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: step.volume}}); err != nil {
			t.Fatal(err)
		}
		m.usedBatches, m.unused = nil, 0
		c.observeUse(&m)
		if !slices.Equal(m.usedBatches, step.used) || m.unused != step.unused {
			t.Errorf("with volume %s: batches %v are used, %d operations are not; want %v and %d", step.volume, m.usedBatches, m.unused, step.used, step.unused)
		}
	}
}
