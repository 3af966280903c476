package manifests

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// policies returns the policies of a folder, by name. Each must have a binding, and fail closed.
func policies(t *testing.T, folder string) map[string]admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	found, bound := map[string]admissionv1.ValidatingAdmissionPolicy{}, map[string]bool{}
	for _, text := range documents(t, filepath.Join(deploy, folder)) {
		var policy admissionv1.ValidatingAdmissionPolicy
		var binding admissionv1.ValidatingAdmissionPolicyBinding
		if yaml.UnmarshalStrict([]byte(text), &policy) == nil && policy.Kind == "ValidatingAdmissionPolicy" {
			found[policy.Name] = policy
		}
		if yaml.UnmarshalStrict([]byte(text), &binding) == nil && binding.Kind == "ValidatingAdmissionPolicyBinding" {
			bound[binding.Spec.PolicyName] = slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny})
		}
	}
	for name, policy := range found {
		if !bound[name] {
			t.Errorf("policy %s has no binding that denies", name)
		}
		if *policy.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("policy %s does not fail closed", name)
		}
	}
	return found
}

// TestPoliciesHaveTheTunnelPorts: CEL cannot read the manager's settings.
func TestPoliciesHaveTheTunnelPorts(t *testing.T) {
	all := policies(t, "components/admission")
	want := []admissionv1.Variable{
		{Name: "first", Expression: strconv.Itoa(wellknown.DefaultBasePort)},
		{Name: "last", Expression: strconv.Itoa(wellknown.DefaultBasePort + wellknown.DefaultPortCount - 1)},
	}
	for _, name := range []string{"efs-stunnel-host-ports", "efs-stunnel-node-ports"} {
		// The patch in the component's comment depends on this order.
		if got := all[name].Spec.Variables; len(got) < 2 || !slices.Equal(got[:2], want) {
			t.Errorf("policy %s begins with the variables %v, want %v", name, got, want)
		}
	}
	if _, ok := all["efs-stunnel-jobs"]; !ok {
		t.Error("there is no policy for the manager's Jobs")
	}
}

// TestStartupTaintHasItsPolicy: without, the right to patch is for every field of every node.
func TestStartupTaintHasItsPolicy(t *testing.T) {
	if _, ok := policies(t, "components/startup-taint")["efs-stunnel-agent"]; !ok {
		t.Error("the component has no policy for nodes")
	}
}
