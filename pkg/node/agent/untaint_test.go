package agent

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestUntaint(t *testing.T) {
	ours := corev1.Taint{Key: wellknown.TaintAgentNotReady, Effect: corev1.TaintEffectNoExecute}
	tests := map[string]struct {
		taints []corev1.Taint
		want   string
	}{
		"no taints":          {nil, "null"},
		"other taints":       {[]corev1.Taint{{Key: "a"}}, "null"},
		"our key as a value": {[]corev1.Taint{{Key: "a", Value: wellknown.TaintAgentNotReady}}, "null"},
		"ours is tested, then removed": {[]corev1.Taint{{Key: "a"}, ours}, `[` +
			`{"op":"test","path":"/spec/taints/1","value":{"key":"efs-stunnel.gnuthought.com/agent-not-ready","effect":"NoExecute"}},` +
			`{"op":"remove","path":"/spec/taints/1"}]`},
		"the last of two is removed first": {[]corev1.Taint{ours, ours}, `[` +
			`{"op":"test","path":"/spec/taints/1","value":{"key":"efs-stunnel.gnuthought.com/agent-not-ready","effect":"NoExecute"}},` +
			`{"op":"remove","path":"/spec/taints/1"},` +
			`{"op":"test","path":"/spec/taints/0","value":{"key":"efs-stunnel.gnuthought.com/agent-not-ready","effect":"NoExecute"}},` +
			`{"op":"remove","path":"/spec/taints/0"}]`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := json.Marshal(untaint(tt.taints))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
