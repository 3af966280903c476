//go:build integration

package integration_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// told are the manager's events about an object, of some reasons or of all. They lie in the
// object's namespace, or in "default".
func (s *claimsWorld) told(ctx context.Context, object metav1.Object, reasons ...string) []corev1.Event {
	s.Helper()
	list, err := s.Client.CoreV1().Events(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(object.GetUID())).String(),
	})
	if err != nil {
		s.Fatal(err)
	}
	var found []corev1.Event
	for _, event := range list.Items {
		if event.Source.Component != wellknown.ManagerDeployment {
			continue // the binder has reasons of the same names
		}
		if len(reasons) == 0 || slices.Contains(reasons, event.Reason) {
			found = append(found, event)
		}
	}
	return found
}

// awaitTold waits for an event that has all the words.
func (s *claimsWorld) awaitTold(object metav1.Object, reason string, words ...string) {
	s.Helper()
	s.Eventually(fmt.Sprintf("%s has the event %s", object.GetName(), reason), func(ctx context.Context) error {
		events := s.told(ctx, object, reason)
		if slices.ContainsFunc(events, func(event corev1.Event) bool { return hasWords(event.Message, words) }) {
			return nil
		}
		return fmt.Errorf("no event with %q among %d: %q", words, len(events), messages(events))
	})
}

func hasWords(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

func messages(events []corev1.Event) []string {
	var all []string
	for _, event := range events {
		all = append(all, event.Message)
	}
	return all
}

// timesTold counts the writes of events, also of those that were written again.
func timesTold(events []corev1.Event) int {
	times := 0
	for _, event := range events {
		times += max(1, int(event.Count))
	}
	return times
}

// wantTold wants that an object's events of a reason were written so many times and no more.
func (s *claimsWorld) wantTold(object metav1.Object, reason string, times int) {
	s.Helper()
	if events := s.told(s.Context(), object, reason); timesTold(events) != times {
		s.Errorf("%s has the event %s %d times, want %d: %q", object.GetName(), reason, timesTold(events), times, messages(events))
	}
}

// awaitRejected waits until a claim says why it is refused, in its annotations and in an event.
func (s *claimsWorld) awaitRejected(claim *corev1.PersistentVolumeClaim, words ...string) {
	s.Helper()
	s.Eventually("claim "+claim.Name+" is rejected", func(ctx context.Context) error {
		found, err := s.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		reason := found.Annotations[wellknown.AnnotationRejectReason]
		if found.Annotations[wellknown.AnnotationRejected] != wellknown.ValueTrue || !hasWords(reason, words) {
			return fmt.Errorf("rejected %q because %q, want %q", found.Annotations[wellknown.AnnotationRejected], reason, words)
		}
		return nil
	})
	s.awaitTold(claim, wellknown.EventProvisioningFailed, words...)
}

// wantNotRejected wants that nothing is left of an earlier refusal.
func (s *claimsWorld) wantNotRejected(claim *corev1.PersistentVolumeClaim) {
	s.Helper()
	for _, key := range []string{wellknown.AnnotationRejected, wellknown.AnnotationRejectReason, wellknown.AnnotationGivenUp} {
		if value, ok := s.see(claim).Annotations[key]; ok {
			s.Errorf("claim %s still has the annotation %s: %q", claim.Name, key, value)
		}
	}
}
