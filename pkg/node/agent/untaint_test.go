package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

func TestOnlyTheStartupTaintIsRemoved(t *testing.T) {
	ours := corev1.Taint{Key: wellknown.TaintAgentNotReady, Effect: corev1.TaintEffectNoExecute}
	other := corev1.Taint{Key: "a", Value: wellknown.TaintAgentNotReady}
	for name, tt := range map[string]struct{ taints, want []corev1.Taint }{
		"no taints":          {nil, nil},
		"our key as a value": {[]corev1.Taint{other}, []corev1.Taint{other}},
		"ours and another":   {[]corev1.Taint{other, ours}, []corev1.Taint{other}},
		"ours twice":         {[]corev1.Taint{ours, ours}, []corev1.Taint{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, withoutStartupTaint(tt.taints)); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}
