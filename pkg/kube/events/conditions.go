package events

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
)

// Conditions writes an event and a log line for each condition that begins, changes or ends. While a
// condition holds, nothing is repeated: the status of API objects shows it.
type Conditions struct {
	Events record.EventRecorder
	// Log returns the logger for a subject.
	Log func(status.Subject) *slog.Logger
	// Objects returns the objects that get the events about a condition, and the events' annotations.
	Objects func(status.Condition) ([]runtime.Object, map[string]string)
}

// Report writes the events and log lines.
func (w Conditions) Report(ctx context.Context, changes status.Changes) {
	for _, c := range changes.Began {
		w.Log(c.Subject).WarnContext(ctx, "problem has begun", w.values(c)...)
		w.Warn(c)
	}
	for _, c := range changes.Changed {
		w.Log(c.Subject).WarnContext(ctx, "problem has changed", w.values(c)...)
		w.Warn(c)
	}
	for _, c := range changes.Ended {
		w.Log(c.Subject).InfoContext(ctx, "problem has ended", "reason", c.Reason)
		w.record(c, corev1.EventTypeNormal, status.EndedEvent(c.Reason), c.Ended())
	}
}

// Warn writes the event of a condition that has begun.
func (w Conditions) Warn(c status.Condition) {
	w.record(c, corev1.EventTypeWarning, c.Reason, c.Message)
}

func (w Conditions) values(c status.Condition) []any {
	values := []any{"reason", c.Reason, "message", c.Message}
	if c.Cause.Reason != "" {
		values = append(values, "cause", fmt.Sprintf("%s of %s", c.Cause.Reason, c.Cause.Subject))
	}
	return values
}

func (w Conditions) record(c status.Condition, eventType, reason, message string) {
	objects, annotations := w.Objects(c)
	for _, object := range objects {
		w.Events.AnnotatedEventf(object, annotations, eventType, reason, "%s", Cut(message))
	}
}

// maxMessageBytes is below the events API's limit of 1024.
const maxMessageBytes = 1000

// Cut returns a message that the events API takes.
func Cut(message string) string { return operations.Shorten(message, maxMessageBytes) }
