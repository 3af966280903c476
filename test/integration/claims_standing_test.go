//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// newForeignClass is of another provisioner, so that the world does not know it for its own.
func (s *claimsWorld) newForeignClass() (name string) {
	s.Helper()
	name = s.NewClass("foreign", nil, func(class *storagev1.StorageClass) { class.Provisioner = "example.com/other" }).Name
	s.Cleanup(func() {
		err := s.Client.StorageV1().StorageClasses().Delete(context.WithoutCancel(s.Context()), name, metav1.DeleteOptions{})
		if err != nil {
			s.Error(err)
		}
	})
	return name
}

// TestClaimsOfOthers leaves alone what nobody has asked us for.
func TestClaimsOfOthers(t *testing.T) {
	s := newClaimsWorld(t)
	foreign := s.newForeignClass()
	later := s.NewClass("later", nil, waitingForConsumers)
	group := "populator.example.com"
	claims := []*corev1.PersistentVolumeClaim{
		s.NewClaim("of-another-provisioner", foreign),
		s.NewClaim("of-another-by-old-annotation", s.class,
			withAnnotations(map[string]string{wellknown.AnnotationStorageClass: foreign})),
		s.NewClaim("of-no-class", ""),
		s.NewClaim("of-a-class-to-come", s.Named("to-come")),
		s.NewClaim("before-its-first-pod", later.Name),
		s.NewClaim("for-one-volume", s.class, func(claim *corev1.PersistentVolumeClaim) { claim.Spec.VolumeName = s.Named("made-by-hand") }),
		s.NewClaim("populated", s.class, func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: "Backup", Name: "nightly"}
		}),
	}
	s.pass("meanwhile", claims...)
	for _, claim := range claims {
		s.wantUntouched(claim)
	}
}

func TestOldAnnotationOfClassWins(t *testing.T) {
	s := newClaimsWorld(t)
	foreign := s.newForeignClass()
	s.bound("data", foreign, withAnnotations(map[string]string{wellknown.AnnotationStorageClass: s.class}))
}

// TestClaimBeforeItsClass needs claims that the cluster has not asked us for yet: its binder
// looks at a claim again when the claim changes, and else only now and then.
func TestClaimBeforeItsClass(t *testing.T) {
	s := newClaimsWorld(t)
	for n := range 5 {
		name := fmt.Sprintf("early-%d", n)
		claim := s.NewClaim(name, s.Named(name))
		s.NewClass(name, nil)
		s.pass(name + "-meanwhile")
		found := s.touches(claim)
		asked := s.see(claim).Annotations[wellknown.AnnotationStorageProvisioner] != "" // read last: it may come any time
		if !asked && len(found) > 0 {
			t.Errorf("nobody has asked, and the claim has %q", found)
		}
		s.annotate(claim, map[string]any{"example.com/look": "again"})
		s.await(claim)
		if !asked {
			return
		}
	}
	t.Skip("the binder was faster each time, so nothing is known of claims that it has not seen")
}

// TestClaimAskedForInTheOldWay makes claims with the beta annotation before their class, so that
// the binder does not add the new one before the claim is bound.
func TestClaimAskedForInTheOldWay(t *testing.T) {
	s := newClaimsWorld(t)
	for n := range 5 {
		name := fmt.Sprintf("old-%d", n)
		claim := s.NewClaim(name, s.Named(name), withAnnotations(map[string]string{wellknown.AnnotationBetaStorageProvisioner: s.Provisioner}))
		s.NewClass(name, nil)
		if v := s.await(claim); v.claim.Annotations[wellknown.AnnotationStorageProvisioner] == "" {
			return
		}
	}
	t.Skip("the binder was faster each time, so nothing is known of the beta annotation")
}
