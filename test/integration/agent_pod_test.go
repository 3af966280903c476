//go:build integration

package integration_test

import (
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// TestSupervisorGetsNoToken: the apiserver adds one to each container that has none, unless the pod
// says otherwise. Every overlay's pod is asked for as the DaemonSet controller would.
func TestSupervisorGetsNoToken(t *testing.T) {
	const tokens = "/var/run/secrets/kubernetes.io/serviceaccount"
	w := newWorld(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: wellknown.NodeServiceAccount}}
	if _, err := w.Client.CoreV1().ServiceAccounts(w.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{
		filepath.Join(kustomizations, "overlays/eks"), filepath.Join(kustomizations, "overlays/lab"),
		filepath.Join(kustomizations, "overlays/openshift"), "../e2e/testdata/components",
	} {
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
