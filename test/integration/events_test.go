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

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// eventsOf returns the events of an object, in its namespace or in "default".
func (f *fixture) eventsOf(ctx context.Context, object metav1.Object) []corev1.Event {
	f.Helper()
	list, err := f.Client.CoreV1().Events(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(object.GetUID())).String(),
	})
	f.check(err)
	return list.Items
}

// managerEvents returns the events of the manager with one of the reasons. The binder uses some of them, too.
func (f *fixture) managerEvents(ctx context.Context, object metav1.Object, reasons ...string) []corev1.Event {
	f.Helper()
	return slices.DeleteFunc(f.eventsOf(ctx, object), func(event corev1.Event) bool {
		return event.Source.Component != wellknown.ManagerDeployment || !slices.Contains(reasons, event.Reason)
	})
}

// waitForEvent waits for an event of the manager with all texts in its message.
func (f *fixture) waitForEvent(object metav1.Object, reason string, texts ...string) {
	f.Helper()
	f.Eventually(fmt.Sprintf("%s has an event %s with %q", object.GetName(), reason, texts), func(ctx context.Context) error {
		events := f.managerEvents(ctx, object, reason)
		if slices.ContainsFunc(events, func(event corev1.Event) bool { return containsAll(event.Message, texts) }) {
			return nil
		}
		return fmt.Errorf("it has %d: %q", len(events), messagesOf(events))
	})
}

// expectEventCount expects that the manager has written events so often, repetitions included.
func (f *fixture) expectEventCount(object metav1.Object, count int, reasons ...string) {
	f.Helper()
	events, got := f.managerEvents(f.Context(), object, reasons...), 0
	for _, event := range events {
		got += max(1, int(event.Count))
	}
	if got != count {
		f.Errorf("%s has %d events with the reasons %q, want %d: %q", object.GetName(), got, reasons, count, messagesOf(events))
	}
}

func containsAll(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

func messagesOf(events []corev1.Event) []string {
	var all []string
	for _, event := range events {
		all = append(all, event.Message)
	}
	return all
}

// waitForRejection waits until the annotations and an event of a claim say why it is refused.
func (f *fixture) waitForRejection(claim *corev1.PersistentVolumeClaim, texts ...string) {
	f.Helper()
	f.Eventually("claim "+claim.Name+" is rejected", func(ctx context.Context) error {
		found, err := f.claims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		rejected, reason := found.Annotations[wellknown.AnnotationRejected], found.Annotations[wellknown.AnnotationRejectReason]
		if rejected != wellknown.ValueTrue || !containsAll(reason, texts) {
			return fmt.Errorf("rejected %q because %q, want %q", rejected, reason, texts)
		}
		return nil
	})
	f.waitForEvent(claim, wellknown.EventProvisioningFailed, texts...)
}

// expectNotRejected expects that the annotations of an earlier refusal are removed.
func (f *fixture) expectNotRejected(claim *corev1.PersistentVolumeClaim) {
	f.Helper()
	annotations := f.getClaim(claim).Annotations
	for _, key := range []string{wellknown.AnnotationRejected, wellknown.AnnotationRejectReason, wellknown.AnnotationGivenUp} {
		if value, ok := annotations[key]; ok {
			f.Errorf("claim %s still has the annotation %s: %q", claim.Name, key, value)
		}
	}
}
