// Package events writes the events that a program records about objects. It is client-go's broadcaster,
// with its aggregation and its rate limit (25 events at once for each object, then one in five minutes).
// Beyond it, an event that the apiserver refuses is dropped after one log line, and events that were
// recorded before the program ends are written.
package events

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// Options are the recorder and its destination.
type Options struct {
	// Client should have a timeout, and a rate limit of its own.
	Client    kubernetes.Interface
	Component string // what kubectl describe shows as the source
	// Subject returns what an event is about besides its object, "" for nothing. Events about different
	// things are neither aggregated nor limited together. It may be nil.
	Subject func(event *corev1.Event) string
	Dropped func(reason string) // called for each event that was not written, with a metav1.StatusReason
	Log     *slog.Logger
}

// Broadcast writes events in the background.
type Broadcast struct {
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	sink        *sink
}

// Start begins to write.
func Start(o Options) *Broadcast {
	b := &Broadcast{
		broadcaster: record.NewBroadcasterWithCorrelatorOptions(o.correlation()),
		sink: &sink{
			EventSink: &typedcorev1.EventSinkImpl{Interface: o.Client.CoreV1().Events("")},
			options:   o,
			flushed:   make(chan struct{}),
		},
	}
	b.recorder = b.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: o.Component})
	b.broadcaster.StartRecordingToSink(b.sink)
	return b
}

// correlation is client-go's, with keys that include Subject.
func (o Options) correlation() record.CorrelatorOptions {
	if o.Subject == nil {
		return record.CorrelatorOptions{}
	}
	return record.CorrelatorOptions{
		KeyFunc: func(event *corev1.Event) (similar, same string) {
			similar, same = record.EventAggregatorByReasonFunc(event)
			return similar + o.Subject(event), same
		},
		SpamKeyFunc: func(event *corev1.Event) string {
			about := event.InvolvedObject
			return strings.Join([]string{about.Kind, about.Namespace, about.Name, string(about.UID), o.Subject(event)}, " ")
		},
	}
}

// Recorder returns the recorder, which never blocks.
func (b *Broadcast) Recorder() record.EventRecorder { return b.recorder }

// Close waits until all recorded events are written or dropped, or the context ends, and stops writing.
func (b *Broadcast) Close(ctx context.Context) {
	defer b.broadcaster.Shutdown()
	b.recorder.Event(&corev1.ObjectReference{Kind: markerKind, Name: markerKind}, corev1.EventTypeNormal, markerKind, "")
	select {
	case <-b.sink.flushed:
	case <-ctx.Done():
		b.sink.options.Log.Warn("events may be lost because they were not written in time", "err", context.Cause(ctx))
	}
}

// markerKind is the kind of an event that is never written. The broadcaster has no flush, and its
// Shutdown drops events that wait; but it keeps their order, so when the sink gets the marker, all events
// before it are done.
const markerKind = "EndOfEvents"

// sink returns no error where a retry would not help.
type sink struct {
	record.EventSink
	options Options
	once    sync.Once
	flushed chan struct{} // closed when the marker arrives
}

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == markerKind {
		s.once.Do(func() { close(s.flushed) })
		return event, nil
	}
	created, err := s.EventSink.Create(event)
	return s.settle(event, created, err)
}

// Patch implements record.EventSink. If the event was deleted, it returns an error, for which the
// broadcaster creates a new one.
func (s *sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	patched, err := s.EventSink.Patch(event, data)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	return s.settle(event, patched, err)
}

// settle returns errors of the network: the broadcaster retries them, 12 times. An error from the
// apiserver it would log in full each time, without a retry.
func (s *sink) settle(event, written *corev1.Event, err error) (*corev1.Event, error) {
	refusal := apierrors.APIStatus(nil)
	if !errors.As(err, &refusal) {
		return written, err
	}
	s.options.Dropped(cmp.Or(string(refusal.Status().Reason), "Unknown"))
	// Missing permissions are logged elsewhere, and terminating namespaces are normal.
	level := slog.LevelWarn
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		level = slog.LevelDebug
	}
	s.options.Log.Log(context.Background(), level, "event dropped", "reason", event.Reason, "err", err)
	return event, nil
}
