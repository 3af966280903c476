package mountjobs_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

func TestNodesToAvoid(t *testing.T) {
	tests := map[string]struct {
		failed []string
		agents []*corev1.Pod
		want   []string
	}{
		"nothing failed":                     {nil, []*corev1.Pod{agent("n1", true)}, nil},
		"another node is ready":              {[]string{"n1"}, []*corev1.Pod{agent("n1", true), agent("n2", true)}, []string{"n1"}},
		"the only node there is":             {[]string{"n1"}, []*corev1.Pod{agent("n1", true)}, nil},
		"every node has failed":              {[]string{"n1", "n2"}, []*corev1.Pod{agent("n1", true), agent("n2", true)}, nil},
		"the other one is not ready":         {[]string{"n1"}, []*corev1.Pod{agent("n1", true), agent("n2", false)}, nil},
		"the other one is not scheduled yet": {[]string{"n1"}, []*corev1.Pod{agent("n1", true), agent("", true)}, nil},
		"no agent is known":                  {[]string{"n1"}, nil, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mountjobs.NodesToAvoid(tt.failed, tt.agents); !slices.Equal(got, tt.want) {
				t.Errorf("NodesToAvoid = %v, want %v", got, tt.want)
			}
		})
	}
}

func agent(node string, ready bool) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return pod
}
