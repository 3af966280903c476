package discovery

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/tell"
)

// teller makes events of notices. Only the sync uses it.
type teller struct {
	events   record.EventRecorder
	log      *slog.Logger
	waiting  []notice             // for the ConfigMap that does not exist yet
	standing map[string]time.Time // when the complaints that still hold were told last, by key
}

// maxMessageBytes is what the events API takes.
const maxMessageBytes = 1000

// tellAll tells news, and complaints that are new. The table's ConfigMap is nil while there is
// none; what is about it then waits.
func (t *teller) tellAll(ctx context.Context, table *corev1.ConfigMap, news []notice, complaints []complaint) {
	for _, n := range news {
		t.log.Log(ctx, levelOf(n), "discovery has news", "reason", n.message)
		t.tell(table, n)
	}
	standing := map[string]time.Time{}
	for _, c := range complaints {
		told, ok := t.standing[c.key]
		if !ok || time.Since(told) >= tell.RepeatAfter {
			t.log.Log(ctx, c.level, "discovery is in trouble", "reason", c.message)
			t.tell(table, c.notice)
			told = time.Now()
		}
		standing[c.key] = told
	}
	t.standing = standing
	t.flush(table)
}

func levelOf(n notice) slog.Level {
	if n.kind == corev1.EventTypeWarning {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

func (t *teller) tell(table *corev1.ConfigMap, n notice) {
	message := cut(n.message)
	if n.about.volume != nil {
		t.events.Event(n.about.volume, n.kind, n.reason, message)
	}
	if n.about.pinned != nil {
		t.events.Event(n.about.pinned, n.kind, n.reason, message)
	}
	if table != nil {
		t.events.Event(table, n.kind, n.reason, message)
		return
	}
	if !slices.Contains(t.waiting, n) {
		t.waiting = append(t.waiting, n)
	}
}

func (t *teller) flush(table *corev1.ConfigMap) {
	if table == nil {
		return
	}
	for _, n := range t.waiting {
		t.events.Event(table, n.kind, n.reason, cut(n.message))
	}
	t.waiting = nil
}

// onVolume tells of something that was done to a volume.
func (t *teller) onVolume(volume *corev1.PersistentVolume, reason, message string) {
	t.events.Event(volume, corev1.EventTypeWarning, reason, cut(message))
}

func cut(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessageBytes], "") + "…"
}
