package agent_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/test/support/stunneltest"
)

func taints(keys ...string) []corev1.Taint {
	var all []corev1.Taint
	for _, key := range keys {
		all = append(all, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	}
	return all
}

func (c *cluster) setTaints(all []corev1.Taint) {
	c.Helper()
	nodes := c.client.CoreV1().Nodes()
	node, err := nodes.Get(c.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	node.Spec.Taints = all
	if _, err := nodes.Update(c.Context(), node, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) taints() []string {
	c.Helper()
	node, err := c.client.CoreV1().Nodes().Get(c.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	keys := []string{}
	for _, taint := range node.Spec.Taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

func TestStartupTaint(t *testing.T) {
	const ours = wellknown.TaintAgentNotReady
	c := newCluster(t)
	c.mountTarget("127.1.0.1")
	local := stunneltest.FreePort(t, "127.0.0.1")
	c.setTaints(taints("a", ours, "b"))
	conflicts := 0
	c.client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts++
		if conflicts > 1 {
			return false, nil, nil
		}
		// The list changes between the agent's check and its patch.
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, nodeName, nil)
	})
	p := c.pod(stunneltest.FreePort(t, "127.0.0.1").String())
	p.startAgent(func(o *agent.Options) { o.RemoveStartupTaint = true })
	c.publish(tableOf(map[string]ports.Target{"fs-1": target(int(local.Port()), "127.1.0.1", "")}))
	if p.agent.Ready() == nil {
		t.Error("ready without a supervisor")
	}
	if diff := cmp.Diff([]string{"a", ours, "b"}, c.taints()); diff != "" {
		t.Errorf("before it is ready (-want +got):\n%s", diff)
	}
	p.startSupervisor()
	p.until("the taint is gone", func() bool { return cmp.Equal([]string{"a", "b"}, c.taints()) })
	if err := c.serves(local); err != nil {
		t.Errorf("the taint went before the tunnel answered: %v", err)
	}
	c.setTaints(taints(ours, "c", ours))
	p.until("it is removed again", func() bool { return cmp.Equal([]string{"c"}, c.taints()) })
}
