package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestFIPSIsTheSupervisorsSetting: it runs stunnel, and refuses a build without Go's module, which is the
// agent's, too. What it refuses is shown by kubectl describe.
func TestFIPSIsTheSupervisorsSetting(t *testing.T) {
	var patch appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text(t, deploy, "components/fips/agent.yaml"), &patch); err != nil {
		t.Fatal(err)
	}
	want := []corev1.Container{{Name: "supervisor", Env: []corev1.EnvVar{{Name: "EFS_FIPS", Value: "true"}}}}
	if diff := cmp.Diff(want, patch.Spec.Template.Spec.Containers); diff != "" || patch.Name != wellknown.NodeDaemonSet {
		t.Errorf("patch of %s, containers mismatch (-want +got):\n%s", patch.Name, diff)
	}
	set := read[appsv1.DaemonSet](t, "DaemonSet", wellknown.NodeDaemonSet)
	if got := container(t, set, "supervisor").TerminationMessagePolicy; got != corev1.TerminationMessageFallbackToLogsOnError {
		t.Errorf("termination messages are %q", got)
	}
}
