package main

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestPullSecretsOfPreflightPods: manifests name them in the DaemonSet, and the Helm chart in its service account.
func TestPullSecretsOfPreflightPods(t *testing.T) {
	secrets := func(name string) []corev1.LocalObjectReference { return []corev1.LocalObjectReference{{Name: name}} }
	account := &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel", Name: "efs-stunnel"}, ImagePullSecrets: secrets("of-the-account"),
	}
	for name, tt := range map[string]struct {
		pod  corev1.PodSpec
		want []corev1.LocalObjectReference
	}{
		"of the pods":        {corev1.PodSpec{ServiceAccountName: "efs-stunnel", ImagePullSecrets: secrets("of-the-pods")}, secrets("of-the-pods")},
		"of the account":     {corev1.PodSpec{ServiceAccountName: "efs-stunnel"}, secrets("of-the-account")},
		"unreadable account": {corev1.PodSpec{ServiceAccountName: "other"}, nil},
		"none":               {corev1.PodSpec{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			agents := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "efs-stunnel"}}
			agents.Spec.Template.Spec = tt.pod
			if got := pullSecrets(t.Context(), fake.NewClientset(account), agents); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
