//go:build integration

package integration_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/loops"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// hasty has failures follow each other quickly, and few of them.
func hasty(options *loops.Options) {
	options.Backoff, options.Threshold = 100*time.Millisecond, 2
}

// awaitGivenUp waits for another mark than the one before.
func (s *claimsWorld) awaitGivenUp(claim *corev1.PersistentVolumeClaim, before string) (mark string) {
	s.Helper()
	s.Eventually("claim "+claim.Name+" is given up", func(ctx context.Context) error {
		found, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if mark = found.Annotations[wellknown.AnnotationGivenUp]; mark == "" || mark == before {
			return fmt.Errorf("its mark is %q, as before", mark)
		}
		return nil
	})
	return mark
}
