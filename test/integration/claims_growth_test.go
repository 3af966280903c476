//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func expandable(class *storagev1.StorageClass) {
	yes := true
	class.AllowVolumeExpansion = &yes
}

// TestClaimGrows has the volume's number follow first, and then the claim's, twice.
func TestClaimGrows(t *testing.T) {
	s := newClaimsWorld(t)
	v := s.bound("data", s.NewClass("growing", nil, expandable).Name)
	s.write(v.path, "data")
	for _, size := range []string{"2Gi", "5Gi"} {
		s.request(v.claim, size)
		claim := s.awaitCapacity(v.claim, size)
		if len(claim.Status.Conditions) > 0 {
			t.Errorf("the claim has the conditions %v", claim.Status.Conditions)
		}
		object := s.awaitPhase(v.object.Name, corev1.VolumeBound)
		if got := object.Spec.Capacity[corev1.ResourceStorage]; got.String() != size {
			t.Errorf("the claim has %s, and the volume only %s", size, &got)
		}
	}
	s.wantFile(v.path, "data")
	if runs := len(s.Kubelet.Runs()); runs != 1 {
		t.Errorf("%d Jobs ran, want the one that made the directory", runs)
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
