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

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// everything is all that can be rendered with a node agent in it.
func everything() []string {
	return []string{
		filepath.Join(kustomizations, "overlays/eks"), filepath.Join(kustomizations, "overlays/lab"),
		filepath.Join(kustomizations, "overlays/openshift"), "../e2e/testdata/components",
	}
}

// TestSupervisorGetsNoToken: the apiserver adds one to each container that has none, unless the pod
// says otherwise. Every overlay's pod is asked for as the DaemonSet controller would.
func TestSupervisorGetsNoToken(t *testing.T) {
	const tokens = "/var/run/secrets/kubernetes.io/serviceaccount"
	w := newWorld(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: wellknown.NodeServiceAccount}}
	if _, err := w.Client.CoreV1().ServiceAccounts(w.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, folder := range everything() {
		set := only[appsv1.DaemonSet](t, rendered(t, folder), "DaemonSet", wellknown.NodeDaemonSet)
		pod := &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec}
		pod.Name = wellknown.NodeDaemonSet
		pod, err := w.Client.CoreV1().Pods(w.Namespace).Create(t.Context(), pod, dry())
		if err != nil {
			t.Errorf("%s: %v", folder, err)
			continue
		}
		for _, c := range pod.Spec.Containers {
			has := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokens })
			if has != (c.Name == "agent") {
				t.Errorf("%s: container %s mounts %+v", folder, c.Name, c.VolumeMounts)
			}
		}
	}
}

// TestAgentWritesEventsOfNodesOnly: they are in "default" in every overlay, whatever namespace the
// product is in.
func TestAgentWritesEventsOfNodesOnly(t *testing.T) {
	const right = "efs-stunnel-agent-events"
	for _, folder := range everything() {
		objects := rendered(t, folder)
		role, binding := only[rbacv1.Role](t, objects, "Role", right), only[rbacv1.RoleBinding](t, objects, "RoleBinding", right)
		account := only[corev1.ServiceAccount](t, objects, "ServiceAccount", wellknown.NodeServiceAccount)
		if role.Namespace != metav1.NamespaceDefault || binding.Namespace != metav1.NamespaceDefault {
			t.Errorf("%s: the role is in %s, its binding in %s", folder, role.Namespace, binding.Namespace)
		}
		want := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}}
		if !slices.Equal(binding.Subjects, want) {
			t.Errorf("%s: the role is for %v, want %v", folder, binding.Subjects, want)
		}
		for _, rule := range only[rbacv1.ClusterRole](t, objects, "ClusterRole", "efs-stunnel-agent").Rules {
			if slices.Contains(rule.Resources, "events") {
				t.Errorf("%s: the agent writes events in every namespace", folder)
			}
		}
	}
}
