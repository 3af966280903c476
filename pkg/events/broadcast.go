// Package events writes the events that a program records about objects. It is client-go's
// broadcaster, with its aggregation and its filter against floods (25 events at once for each
// object, then one in five minutes), and with two promises more: what the apiserver refuses is
// dropped without a word too many, and what was recorded before the end is written.
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

// Options say who records, and where.
type Options struct {
	// Client should have a timeout, and a rate limit of its own.
	Client    kubernetes.Interface
	Component string // what kubectl describe shows as the source
	// Apart says what an event is about besides its object, "" for nothing. Events about different
	// things are neither put together nor counted against each other. nil stands for nothing.
	Apart func(event *corev1.Event) string
	// Dropped is told why an event could not be written, in the words of metav1.StatusReason.
	Dropped func(reason string)
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

// correlation is client-go's own, but for the keys.
func (o Options) correlation() record.CorrelatorOptions {
	if o.Apart == nil {
		return record.CorrelatorOptions{}
	}
	return record.CorrelatorOptions{
		KeyFunc: func(event *corev1.Event) (similar, same string) {
			similar, same = record.EventAggregatorByReasonFunc(event)
			return similar + o.Apart(event), same
		},
		SpamKeyFunc: func(event *corev1.Event) string {
			about := event.InvolvedObject
			return strings.Join([]string{about.Kind, about.Namespace, about.Name, string(about.UID), o.Apart(event)}, " ")
		},
	}
}

// Recorder records. It never waits.
func (b *Broadcast) Recorder() record.EventRecorder { return b.recorder }

// Close waits until everything recorded so far is written or dropped, but not longer than ctx
// allows, and ends the writing.
func (b *Broadcast) Close(ctx context.Context) {
	defer b.broadcaster.Shutdown()
	b.recorder.Event(&corev1.ObjectReference{Kind: markerKind, Name: markerKind}, corev1.EventTypeNormal, markerKind, "")
	select {
	case <-b.sink.flushed:
	case <-ctx.Done():
		b.sink.options.Log.Warn("events may be lost: they could not be written in time", "err", context.Cause(ctx))
	}
}

// markerKind is of an event that is never written. The broadcaster has no flush, and its
// Shutdown forgets what waits; but its order is kept, so what came before the marker is done
// when the sink sees it.
const markerKind = "EndOfEvents"

// sink says success where a repetition would not help.
type sink struct {
	record.EventSink
	options Options
	once    sync.Once
	flushed chan struct{} // closed when the marker came by
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

// Patch implements record.EventSink. An event that is gone is an error, for which the
// broadcaster makes a new one.
func (s *sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	patched, err := s.EventSink.Patch(event, data)
	if apierrors.IsNotFound(err) {
		return nil, err
	}
	return s.settle(event, patched, err)
}

// settle lets errors of the network through: for those the broadcaster tries again, 12 times.
// What the apiserver answered it would log in full each time, and not try again either.
func (s *sink) settle(event, written *corev1.Event, err error) (*corev1.Event, error) {
	refusal := apierrors.APIStatus(nil)
	if !errors.As(err, &refusal) {
		return written, err
	}
	s.options.Dropped(cmp.Or(string(refusal.Status().Reason), "Unknown"))
	// Missing rights and namespaces that go away are told elsewhere, or no news.
	level := slog.LevelWarn
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) {
		level = slog.LevelDebug
	}
	s.options.Log.Log(context.Background(), level, "event dropped", "reason", event.Reason, "err", err)
	return event, nil
}
