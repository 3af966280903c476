//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func templateOf(class string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class,
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

func idle(volumes ...corev1.Volume) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "idle", Image: "idle"}}, Volumes: volumes}
}

// TestStatefulSet gives each replica a directory of its own.

// TestEphemeralVolume has a pod of the same name start with nothing.
func TestEphemeralVolume(t *testing.T) {
	s := newClaimsWorld(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "worker"}, Spec: idle(corev1.Volume{
		Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: templateOf(s.class)},
		}},
	})}
	s.createPod(pod)
	first := s.await(s.awaitClaim("worker-scratch", ""))
	s.write(first.path, "data")
	now := int64(0)
	if err := s.Client.CoreV1().Pods(s.Team).Delete(s.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	s.AwaitVolumeGone(first.claim) // the garbage collector deletes the claim
	s.wantNoTrace(first.path)
	s.createPod(pod)
	second := s.await(s.awaitClaim("worker-scratch", first.claim.UID))
	if second.path == first.path {
		t.Errorf("both pods have %s", second.path)
	}
	s.wantEmpty(second.path)
}

// createPod waits for the namespace's service account, which a controller makes.
func (s *claimsWorld) createPod(pod *corev1.Pod) {
	s.Helper()
	s.Eventually("pod "+pod.Name+" is created", func(ctx context.Context) error {
		_, err := s.Client.CoreV1().Pods(s.Team).Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// awaitClaim waits for a claim that a controller makes, and that has not the uid of an old one.
func (s *claimsWorld) awaitClaim(name string, not types.UID) *corev1.PersistentVolumeClaim {
	s.Helper()
	var claim *corev1.PersistentVolumeClaim
	s.Eventually("claim "+name+" is there", func(ctx context.Context) (err error) {
		claim, err = s.Client.CoreV1().PersistentVolumeClaims(s.Team).Get(ctx, name, metav1.GetOptions{})
		if err == nil && claim.UID == not {
			err = fmt.Errorf("it is still the old one")
		}
		return err
	})
	return claim
}
