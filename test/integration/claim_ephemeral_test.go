//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestEphemeralVolumeIsDeletedWithItsPod: the garbage collector deletes its claim, and the next pod of
// that name has an empty directory.
func TestEphemeralVolumeIsDeletedWithItsPod(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "idle", Image: "idle"}},
		Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &f.class,
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources:        corev1.VolumeResourceRequirements{Requests: oneGibibyte()},
			}},
		}}}},
	}}
	f.createPod(pod)
	first := f.waitForProvisioned(f.waitForClaim("worker-scratch", ""))
	f.writeFile(first.path)
	now := int64(0)
	f.check(f.Client.CoreV1().Pods(f.Team).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	f.WaitForVolumeDeleted(first.claim)
	f.expectNoTrace(first.path)
	f.createPod(pod)
	second := f.waitForProvisioned(f.waitForClaim("worker-scratch", first.claim.UID))
	if second.path == first.path {
		t.Errorf("both pods have %s", second.path)
	}
	if names := f.names(second.path); len(names) > 0 {
		t.Errorf("%s has the entries %q", second.path, names)
	}
}

// createPod waits for the namespace's service account, which a controller creates.
func (f *fixture) createPod(pod *corev1.Pod) {
	f.Helper()
	f.Eventually("pod "+pod.Name+" is created", func(ctx context.Context) error {
		_, err := f.Client.CoreV1().Pods(f.Team).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// waitForClaim waits for a claim that a controller creates, with another uid than an earlier one.
func (f *fixture) waitForClaim(name string, earlier types.UID) *corev1.PersistentVolumeClaim {
	f.Helper()
	var claim *corev1.PersistentVolumeClaim
	f.Eventually("claim "+name+" is created", func(ctx context.Context) (err error) {
		claim, err = f.claims(f.Team).Get(ctx, name, metav1.GetOptions{})
		if err == nil && claim.UID == earlier {
			err = fmt.Errorf("it is still the earlier one")
		}
		return err
	})
	return claim
}
