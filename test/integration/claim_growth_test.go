//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// TestMountedClaimGrows: its status ends as external-resizer leaves it, also where a resize was marked
// as pending.
func TestMountedClaimGrows(t *testing.T) {
	t.Parallel()
	f := newFixtureWithManager(t)
	p := f.provision("data", f.NewClass("growing", nil, expandable).Name)
	f.startPod(p.claim)
	f.requestSize(p.claim, "2Gi")
	claim := f.waitForCapacity(p.claim, "2Gi")
	if got := claim.Status.AllocatedResources[corev1.ResourceStorage]; got.String() != "2Gi" || len(claim.Status.AllocatedResources) != 1 {
		t.Errorf("the claim has 2Gi and the allocated resources %v", claim.Status.AllocatedResources)
	}
	f.waitForEvent(p.claim, wellknown.EventVolumeResizeSuccessful, p.volume.Name, "2Gi")
	patch := []byte(`{"status": {
		"conditions": [{"type": "FileSystemResizePending", "status": "True"}, {"type": "ModifyingVolume", "status": "True"}],
		"allocatedResourceStatuses": {"storage": "NodeResizePending", "example.com/quality": "NodeResizePending"}}}`)
	_, err := f.claims(f.Team).Patch(t.Context(), claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	f.check(err)
	f.Eventually("the marks of the resize are removed, and the others kept", func(ctx context.Context) error {
		claim, err := f.claims(f.Team).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := claim.Status
		_, resizing := status.AllocatedResourceStatuses[corev1.ResourceStorage]
		for _, c := range status.Conditions { // Kubernetes adds its own: since 1.37 whether a pod uses the claim
			resizing = resizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		}
		modifying := slices.ContainsFunc(status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimVolumeModifyingVolume
		})
		if resizing || !modifying || len(status.AllocatedResourceStatuses) != 1 {
			return fmt.Errorf("it has the resource statuses %v and the conditions %v", status.AllocatedResourceStatuses, status.Conditions)
		}
		return nil
	})
}

func (f *fixture) waitForCapacity(claim *corev1.PersistentVolumeClaim, size string) *corev1.PersistentVolumeClaim {
	f.Helper()
	var found *corev1.PersistentVolumeClaim
	f.Eventually("the claim has "+size, func(ctx context.Context) (err error) {
		if found, err = f.claims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if got := found.Status.Capacity[corev1.ResourceStorage]; got.String() != size {
			return fmt.Errorf("it has %s", &got)
		}
		return nil
	})
	return found
}

// startPod creates a pod that has the claim mounted, as far as the apiserver knows.
func (f *fixture) startPod(claim *corev1.PersistentVolumeClaim) (stop func()) {
	f.Helper()
	pods, no := f.Client.CoreV1().Pods(claim.Namespace), false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "user"},
		Spec: corev1.PodSpec{
			NodeName: f.Nodes[0], AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "app", Image: "app"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}}},
		},
	}
	f.createPod(pod)
	return func() {
		f.Helper()
		now := int64(0)
		f.check(pods.Delete(f.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
}
