// Package tell writes each event once. A control loop comes to the same conclusion at every sync;
// users should read it once, and again only after a while.
package tell

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/record"
)

// RepeatAfter is when an event that still holds is written again: earlier than a cluster deletes
// events, so that kubectl describe always shows what is wrong with an object.
const RepeatAfter = 30 * time.Minute

// Teller writes events. It is safe for concurrent use. Its memory may be lost: then an event is
// written once more.
type Teller struct {
	events  record.EventRecorder
	written *cache.Expiring // the latest message of each subject
}

// New makes a teller.
func New(events record.EventRecorder) *Teller {
	return &Teller{events: events, written: cache.NewExpiring()}
}

// Object is what an event can be about.
type Object interface {
	runtime.Object
	GetUID() types.UID
}

type subject struct {
	uid    types.UID
	reason string
	topic  string
}

// Warn writes a Warning, unless it was the latest of its object and reason.
func (t *Teller) Warn(object Object, reason, message string) {
	t.WarnOf(object, reason, "", message)
}

// WarnOf is Warn for one of several topics with the same reason, each of which has a latest message.
func (t *Teller) WarnOf(object Object, reason, topic, message string) {
	t.write(corev1.EventTypeWarning, object, reason, topic, message)
}

// SayOf is WarnOf for a Normal event.
func (t *Teller) SayOf(object Object, reason, topic, message string) {
	t.write(corev1.EventTypeNormal, object, reason, topic, message)
}

func (t *Teller) write(eventType string, object Object, reason, topic, message string) {
	key := subject{object.GetUID(), reason, topic}
	if last, ok := t.written.Get(key); ok && last == message {
		return
	}
	t.written.Set(key, message, RepeatAfter)
	t.events.Event(object, eventType, reason, message)
}

// Say writes a Normal event in any case.
func (t *Teller) Say(object Object, reason, message string) {
	t.events.Event(object, corev1.EventTypeNormal, reason, message)
}
