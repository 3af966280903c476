//go:build integration

package integration_test

import (
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// agentKustomizations returns the kustomizations with a node agent.
func agentKustomizations() []string {
	return []string{
		filepath.Join(kustomizations, "overlays/eks"), filepath.Join(kustomizations, "overlays/lab"),
		filepath.Join(kustomizations, "overlays/openshift"), "../e2e/testdata/components",
	}
}

// TestSupervisorHasNoToken: the apiserver mounts one into each container, unless the pod disables that.
// The test creates every overlay's pod as the DaemonSet controller does.
func TestSupervisorHasNoToken(t *testing.T) {
	const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	env := newEnv(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: wellknown.NodeServiceAccount}}
	if _, err := env.Client.CoreV1().ServiceAccounts(env.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, folder := range agentKustomizations() {
		set := find[appsv1.DaemonSet](t, render(t, folder), "DaemonSet", wellknown.NodeDaemonSet)
		pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
		pod.Name = wellknown.NodeDaemonSet
		pod, err := env.Client.CoreV1().Pods(env.Namespace).Create(t.Context(), pod, dryRun())
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		for _, c := range pod.Spec.Containers {
			has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath })
			if has != (c.Name == "agent") {
				t.Errorf("%s: container %s mounts %+v", folder, c.Name, c.VolumeMounts)
			}
		}
	}
}

// TestAgentMayWriteEventsOfNodesOnly: those are in "default" in every overlay, whatever namespace the
// agent is in.
func TestAgentMayWriteEventsOfNodesOnly(t *testing.T) {
	const roleName = "efs-stunnel-agent-events"
	for _, folder := range agentKustomizations() {
		objects := render(t, folder)
		role, binding := find[rbacv1.Role](t, objects, "Role", roleName), find[rbacv1.RoleBinding](t, objects, "RoleBinding", roleName)
		account := find[corev1.ServiceAccount](t, objects, "ServiceAccount", wellknown.NodeServiceAccount)
		if role.Namespace != metav1.NamespaceDefault || binding.Namespace != metav1.NamespaceDefault {
			t.Errorf("%s: the role is in %s, its binding in %s", folder, role.Namespace, binding.Namespace)
		}
		want := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}
		if !slices.Equal(binding.Subjects, want) {
			t.Errorf("%s: the role is for %v, want %v", folder, binding.Subjects, want)
		}
		for _, rule := range find[rbacv1.ClusterRole](t, objects, "ClusterRole", "efs-stunnel-agent").Rules {
			if slices.Contains(rule.Resources, "events") {
				t.Errorf("%s: the agent writes events in every namespace", folder)
			}
		}
	}
}
