// Package events writes the events that a program records about objects. It is client-go's broadcaster,
// with its aggregation and its rate limit (25 events at once for each object, then one in five minutes),
// once for warnings and once for all other events: a broadcaster's queue has 1,000 places, drops what does
// not fit, and writes in order, so a thousand claims that succeed would delay or drop the warning of one
// that does not.
//
// Beyond client-go, an event that the apiserver refuses is dropped after one log line, and events that were
// recorded before the program ends are written.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// Broadcast writes events in the background, each with the stream of its type. It is a record.EventRecorder that never
// blocks.
type Broadcast struct {
	warnings, normal *stream
}

// Start begins to write, warnings and normal events with a client of their own, which should have a timeout and a rate
// limit. It calls dropped for each event that was not written, with a metav1.StatusReason.
func Start(warnings, normal kubernetes.Interface, dropped func(reason string), log *slog.Logger) *Broadcast {
	return &Broadcast{warnings: start(warnings, dropped, log), normal: start(normal, dropped, log)}
}

// stream writes events in the order in which they are recorded. As a sink, it returns no error where a retry would not
// help.
type stream struct {
	record.EventRecorder
	record.EventSink
	broadcaster record.EventBroadcaster
	dropped     func(reason string)
	log         *slog.Logger
	once        sync.Once
	flushed     chan struct{} // closed when the marker arrives
}

func start(client kubernetes.Interface, dropped func(reason string), log *slog.Logger) *stream {
	s := &stream{
		EventSink:   &typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")},
		broadcaster: record.NewBroadcasterWithCorrelatorOptions(correlation),
		dropped:     dropped,
		log:         log,
		flushed:     make(chan struct{}),
	}
	s.EventRecorder = s.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "efs-stunnel"})
	s.broadcaster.StartRecordingToSink(s)
	return s
}

// correlation is client-go's, but for events about different tunnels, which are neither aggregated nor limited together.
var correlation = record.CorrelatorOptions{
	KeyFunc: func(event *corev1.Event) (similar, same string) {
		similar, same = record.EventAggregatorByReasonFunc(event)
		return similar + event.Annotations[wellknown.AnnotationTunnel], same
	},
	SpamKeyFunc: func(event *corev1.Event) string {
		about, tunnel := event.InvolvedObject, event.Annotations[wellknown.AnnotationTunnel]
		return strings.Join([]string{about.Kind, about.Namespace, about.Name, string(about.UID), tunnel}, " ")
	},
}

func (b *Broadcast) of(eventType string) *stream {
	if eventType == corev1.EventTypeNormal {
		return b.normal
	}
	return b.warnings
}

// Event implements record.EventRecorder.
func (b *Broadcast) Event(object runtime.Object, eventType, reason, message string) {
	b.of(eventType).Event(object, eventType, reason, message)
}

// Eventf implements record.EventRecorder.
func (b *Broadcast) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	b.of(eventType).Eventf(object, eventType, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (b *Broadcast) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	b.of(eventType).AnnotatedEventf(object, annotations, eventType, reason, format, args...)
}

// FlushTimeout is for programs that end in order.
const FlushTimeout = 3 * time.Second

// Close waits until all recorded events are written or dropped, or the time is over, and stops writing.
func (b *Broadcast) Close(timeout time.Duration) {
	over := time.After(timeout)
	for _, s := range []*stream{b.warnings, b.normal} {
		defer s.broadcaster.Shutdown()
		s.Event(&corev1.ObjectReference{Kind: markerKind, Name: markerKind}, corev1.EventTypeNormal, markerKind, "")
	}
	for _, s := range []*stream{b.warnings, b.normal} {
		select {
		case <-s.flushed:
		case <-over:
			s.log.Warn("events may be lost because they were not written in time", "duration", timeout)
			return
		}
	}
}

// markerKind is the kind of an event that is never written. The broadcaster has no flush, and its
// Shutdown drops events that wait; but it keeps their order, so when the sink gets the marker, all events
// before it are done.
const markerKind = "EndOfEvents"

func (s *stream) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == markerKind {
		s.once.Do(func() { close(s.flushed) })
		return event, nil
	}
	created, err := s.EventSink.Create(event)
	return s.settle(event, created, err)
}

// Patch implements record.EventSink. If the event was deleted, it returns an error, for which the
// broadcaster creates a new one.
func (s *stream) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	patched, err := s.EventSink.Patch(event, data)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	return s.settle(event, patched, err)
}

// settle returns errors of the network: the broadcaster retries them, 12 times. An error from the
// apiserver it would log in full each time, without a retry.
func (s *stream) settle(event, written *corev1.Event, err error) (*corev1.Event, error) {
	refusal := apierrors.APIStatus(nil)
	if !errors.As(err, &refusal) {
		return written, err
	}
	s.dropped(cmp.Or(string(refusal.Status().Reason), "Unknown"))
	// Missing permissions are logged elsewhere, and terminating namespaces are normal.
	level := slog.LevelWarn
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, "event dropped", "reason", event.Reason, "err", err)
	return event, nil
}

// memory is how long a message is remembered that is not derived again.
const memory = 2 * time.Hour

// Reporter records events that control loops derive anew at every sync, without repeating them: that what they say
// still holds, the status of an object shows. It is safe for concurrent use. After a restart, an event is recorded
// once more.
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
	last, ok := r.messages.Get(key)
	r.messages.Set(key, message, memory)
	if ok && last == message {
		return
	}
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
		w.record(c, corev1.EventTypeWarning, c.Reason, c.Message)
	}
	for _, c := range changes.Changed {
		w.Log(c.Subject).WarnContext(ctx, "problem has changed", w.values(c)...)
		w.record(c, corev1.EventTypeWarning, c.Reason, c.Message)
	}
	for _, c := range changes.Ended {
		w.Log(c.Subject).InfoContext(ctx, "problem has ended", "reason", c.Reason)
		w.record(c, corev1.EventTypeNormal, status.EndedEvent(c.Reason), c.Ended())
	}
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

// Cut returns a message that the events API takes, whose limit is 1024 bytes.
func Cut(message string) string { return operations.Shorten(message, 1000) }
