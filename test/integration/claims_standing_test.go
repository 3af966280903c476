//go:build integration

package integration_test

import (
	"context"
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

func TestClaimBeforeItsClassIsBound(t *testing.T) {
	s := newClaimsWorld(t)
	claim := s.NewClaim("early", s.Named("to-come"))
	s.NewClass("to-come", nil)
	s.annotate(claim, map[string]any{"example.com/look": "again"}) // the binder looks at a changed claim at once
	s.await(claim)
}
