//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func expandable(class *storagev1.StorageClass) {
	yes := true
	class.AllowVolumeExpansion = &yes
}

// TestClaimGrowsInUse wants of the claim of a running pod what external-resizer leaves of one, also
// where something marked it as being resized.
func TestClaimGrowsInUse(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.bound("data", s.NewClass("growing", nil, expandable).Name)
	s.use(v.claim)
	for _, size := range []string{"2Gi", "5Gi"} {
		s.request(v.claim, size)
		claim := s.awaitCapacity(v.claim, size)
		if got := claim.Status.AllocatedResources[corev1.ResourceStorage]; got.String() != size || len(claim.Status.AllocatedResources) != 1 {
			t.Errorf("the claim has %s and the allocated resources %v", size, claim.Status.AllocatedResources)
		}
		s.awaitTold(v.claim, wellknown.EventVolumeResizeSuccessful, v.object.Name, size)
		s.patchStatus(v.claim, `{"status": {
			"conditions": [{"type": "FileSystemResizePending", "status": "True"}, {"type": "ModifyingVolume", "status": "True"}],
			"allocatedResourceStatuses": {"storage": "NodeResizePending", "example.com/quality": "NodeResizePending"}}}`)
		s.Eventually("nothing is left of a resize", func(ctx context.Context) error {
			claim, err := s.Client.CoreV1().PersistentVolumeClaims(v.claim.Namespace).Get(ctx, v.claim.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			status := claim.Status
			_, resizing := status.AllocatedResourceStatuses[corev1.ResourceStorage]
			if resizing || len(status.AllocatedResourceStatuses) != 1 || len(status.Conditions) != 1 {
				return fmt.Errorf("it has the resource statuses %v and the conditions %v", status.AllocatedResourceStatuses, status.Conditions)
			}
			return nil
		})
	}
}

// use starts a pod with the claim, as far as the apiserver knows.
func (s *claimsWorld) use(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	pods := s.Client.CoreV1().Pods(claim.Namespace)
	pod, err := pods.Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "user-of-" + claim.Name},
		Spec: corev1.PodSpec{
			NodeName:   s.Nodes[0],
			Containers: []corev1.Container{{Name: "app", Image: "app", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := pods.UpdateStatus(s.Context(), pod, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *claimsWorld) patchStatus(claim *corev1.PersistentVolumeClaim, patch string) {
	s.Helper()
	_, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(s.Context(), claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		s.Fatal(err)
	}
}

func (s *claimsWorld) request(claim *corev1.PersistentVolumeClaim, size string) {
	s.Helper()
	s.patchClaim(claim, map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size}}}})
}

func (s *claimsWorld) awaitCapacity(claim *corev1.PersistentVolumeClaim, size string) *corev1.PersistentVolumeClaim {
	s.Helper()
	var found *corev1.PersistentVolumeClaim
	s.Eventually("the claim has "+size, func(ctx context.Context) (err error) {
		found, err = s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := found.Status.Capacity[corev1.ResourceStorage]; got.String() != size {
			return fmt.Errorf("it has %s", &got)
		}
		return nil
	})
	return found
}
