package inspect

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNodesWithOneHostNameAreAProblem(t *testing.T) {
	s := healthy(t)
	s.Nodes = append(s.Nodes, newNode("n3"), newNode("n4")) // without a name that is known
	s.Nodes[0].Labels[corev1.LabelHostname], s.Nodes[1].Labels[corev1.LabelHostname] = "localhost", "localhost"
	s.Nodes[2].Labels[corev1.LabelHostname] = "n3"
	var objects []string
	for _, r := range NewStatus(s).Problems {
		if r.Cause == HostNameShared {
			objects = append(objects, r.Object)
			if !strings.Contains(r.Message, "nodes n1, n2 have the host name localhost") || !strings.Contains(r.Remedy, "nfs.nfs4_unique_id") {
				t.Errorf("%+v", r)
			}
		}
	}
	if got := strings.Join(objects, ", "); got != "node n1, node n2" {
		t.Errorf("problems of %q", got)
	}
	if text := printed(t, "", Examine(s, subjectOf(KindNode, "n3"))); strings.Contains(text, string(HostNameShared)) {
		t.Errorf("another node has the problem:\n%s", text)
	}
	if d := Examine(s, subjectOf(KindNode, "n1")); d.Cause == nil || d.Cause.Cause != HostNameShared {
		t.Errorf("the node has it not: %+v", d.Cause)
	}
	s.Nodes[1].Labels[corev1.LabelHostname] = "n2"
	if results := derive(s).checkHostNames(); len(results) != 0 {
		t.Errorf("different names: %+v", results)
	}
}
