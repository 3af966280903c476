package events

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// RepeatAfter is when an event whose condition still holds is recorded again: earlier than a cluster
// deletes events, so that kubectl describe always shows what is wrong with an object.
const RepeatAfter = 30 * time.Minute

// Reporter records events that control loops derive anew at every sync, without repeating them. It is
// safe for concurrent use. After a restart, an event is recorded once more.
type Reporter struct {
	recorder record.EventRecorder
	messages *cache.Expiring // topic -> latest message
}

// NewReporter returns a Reporter that records with recorder.
func NewReporter(recorder record.EventRecorder) *Reporter {
	return &Reporter{recorder: recorder, messages: cache.NewExpiring()}
}

// Object is what an event can be about.
type Object interface {
	runtime.Object
	GetUID() types.UID
}

type topic struct {
	uid          types.UID
	reason, name string
}

// Warn records a Warning, unless its message is the latest of the object, the reason and the topic, which
// separates conditions with the same reason.
func (r *Reporter) Warn(object Object, reason, topic, message string) {
	r.record(corev1.EventTypeWarning, object, nil, reason, topic, message)
}

// WarnBecause is Warn for an event that says its cause in a word, too; "" is none.
func (r *Reporter) WarnBecause(cause string, object Object, reason, topic, message string) {
	var annotations map[string]string
	if cause != "" {
		annotations = map[string]string{wellknown.AnnotationCause: cause}
	}
	r.record(corev1.EventTypeWarning, object, annotations, reason, topic, message)
}

// Normal is Warn for a Normal event.
func (r *Reporter) Normal(object Object, reason, topic, message string) {
	r.record(corev1.EventTypeNormal, object, nil, reason, topic, message)
}

func (r *Reporter) record(eventType string, object Object, annotations map[string]string, reason, name, message string) {
	key := topic{object.GetUID(), reason, name}
	if last, ok := r.messages.Get(key); ok && last == message {
		return
	}
	r.messages.Set(key, message, RepeatAfter)
	r.recorder.AnnotatedEventf(object, annotations, eventType, reason, "%s", message)
}

// NormalAlways records a Normal event even if it repeats the latest one.
func (r *Reporter) NormalAlways(object Object, reason, message string) {
	r.recorder.Event(object, corev1.EventTypeNormal, reason, message)
}

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
