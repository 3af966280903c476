// Package tell writes events that are news. A control loop comes to the same
// conclusion at every look; people should read it once, and again only after a
// while.
package tell

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/record"
)

// RepeatAfter is when to say again what still holds: shorter than the time for which a cluster
// keeps events, so that describing an object always shows what is wrong with it.
const RepeatAfter = 30 * time.Minute

// Teller is safe for use by many at once. What it remembers may be lost: then something is told
// once more.
type Teller struct {
	events record.EventRecorder
	told   *cache.Expiring
}

// New makes a teller.
func New(events record.EventRecorder) *Teller {
	return &Teller{events: events, told: cache.NewExpiring()}
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

// Warn writes a Warning, unless it is known already.
func (t *Teller) Warn(object Object, reason, message string) {
	t.WarnOf(object, reason, "", message)
}

// WarnOf writes a Warning about one of several topics that have the same reason, each of which
// has its own latest message.
func (t *Teller) WarnOf(object Object, reason, topic, message string) {
	t.write(corev1.EventTypeWarning, object, reason, topic, message)
}

// SayOf is WarnOf for a Normal event.
func (t *Teller) SayOf(object Object, reason, topic, message string) {
	t.write(corev1.EventTypeNormal, object, reason, topic, message)
}

func (t *Teller) write(eventType string, object Object, reason, topic, message string) {
	key := subject{object.GetUID(), reason, topic}
	if last, ok := t.told.Get(key); ok && last == message {
		return
	}
	t.told.Set(key, message, RepeatAfter)
	t.events.Event(object, eventType, reason, message)
}

// Say writes a Normal event, which the caller knows to be news.
func (t *Teller) Say(object Object, reason, message string) {
	t.events.Event(object, corev1.EventTypeNormal, reason, message)
}
