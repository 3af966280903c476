package jobs

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/controller/gatherer"
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
	agents := (&Controller{gatherer: &gatherer.Gatherer{Caches: c}}).agents()
	if len(agents) != 1 || agents[0].Name != "free" {
		t.Errorf("got %d agents: %+v", len(agents), agents)
	}
}
