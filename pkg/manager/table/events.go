package table

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// notice is an event on the ConfigMap with the table.
type notice struct {
	// key names a condition, whatever its message: it is reported when it begins, and once in a while
	// as long as it holds. It is "" for what has happened once.
	key     string
	level   slog.Level // of the log; the event is Normal for Info, else a Warning
	reason  string
	message string
	about   runtime.Object // gets the event, too; nil for none
	// onlyAbout keeps the event off the ConfigMap.
	onlyAbout bool
}

// condition is a Warning as long as it holds.
func condition(key, reason, message string) notice {
	return notice{key: key, level: slog.LevelWarn, reason: reason, message: message}
}

// reporter writes notices to events and the log. Only one loop uses it.
type reporter struct {
	events   record.EventRecorder
	log      *slog.Logger
	pending  []notice            // for the ConfigMap that does not exist yet
	reported map[string]reported // by key: the conditions that hold
}

// reported is a condition as it was last reported.
type reported struct {
	at     time.Time
	reason string
}

func newReporter(o Options) reporter { return reporter{events: o.Events, log: o.Log} }

// report takes all conditions that hold. The table's ConfigMap is nil while there is none; its events
// are written when it exists.
func (r *reporter) report(ctx context.Context, table *corev1.ConfigMap, notices []notice) {
	holds := map[string]reported{}
	for _, n := range notices {
		if last, ok := r.reported[n.key]; ok && time.Since(last.at) < events.RepeatAfter {
			holds[n.key] = last
			continue
		}
		if n.key != "" {
			holds[n.key] = reported{time.Now(), n.reason}
		}
		r.log.Log(ctx, n.level, "discovery recorded an event", "reason", n.reason, "message", n.message)
		if n.about != nil {
			r.event(n.about, n)
		}
		switch {
		case n.onlyAbout:
		case table != nil:
			r.event(table, n)
		case !slices.Contains(r.pending, n):
			r.pending = append(r.pending, n)
		}
	}
	ended := endedReasons(r.reported, holds)
	r.reported = holds
	if table != nil {
		for _, n := range r.pending {
			r.event(table, n)
		}
		r.pending = nil
		for _, reason := range ended {
			r.log.InfoContext(ctx, "problem has ended", "reason", reason)
			mark := map[string]string{wellknown.AnnotationProblem: reason}
			r.events.AnnotatedEventf(table, mark, corev1.EventTypeNormal, wellknown.EventProblemEnded, "%s has ended", reason)
		}
	}
}

// endedReasons are those of conditions that held before, if none with that reason holds now.
func endedReasons(before, now map[string]reported) []string {
	ended := map[string]bool{}
	for _, condition := range before {
		ended[condition.reason] = true
	}
	for _, condition := range now {
		delete(ended, condition.reason)
	}
	return slices.Sorted(maps.Keys(ended))
}

func (r *reporter) event(object runtime.Object, n notice) {
	kind := corev1.EventTypeWarning
	if n.level == slog.LevelInfo {
		kind = corev1.EventTypeNormal
	}
	r.events.Event(object, kind, n.reason, operations.Shorten(n.message, maxMessageBytes))
}

// maxMessageBytes is what the events API takes.
const maxMessageBytes = 1000

// recordOn writes a Warning about something that was done to a volume.
func (c *Controller) recordOn(volume *corev1.PersistentVolume, reason, message string) {
	c.options.Events.Event(volume, corev1.EventTypeWarning, reason, operations.Shorten(message, maxMessageBytes))
}

// eventNotices are about the events of ports.Assign: on the table, and on the volumes that they name.
func eventNotices(changes []ports.Event, objects []*corev1.PersistentVolume) []notice {
	reasons := map[ports.Kind]string{
		ports.Found: wellknown.EventFileSystemFound, ports.Gone: wellknown.EventFileSystemGone,
		ports.Missing: wellknown.EventFileSystemMissing, ports.Unusable: wellknown.EventFileSystemUnusable,
		ports.OutOfPorts: wellknown.EventOutOfPorts, ports.TableFull: wellknown.EventTableFull,
		ports.Conflict: wellknown.EventPortConflict, ports.Ambiguous: wellknown.EventAddressConflict,
	}
	var notices []notice
	for _, n := range changes {
		note := notice{level: slog.LevelWarn, reason: reasons[n.Kind], message: n.Message}
		if n.Kind == ports.Found || n.Kind == ports.Gone {
			note.level = slog.LevelInfo
		}
		if subject := cmp.Or(n.Volume, n.FileSystem); !strings.Contains(n.Message, subject) {
			note.message = subject + ": " + n.Message
		}
		if i := slices.IndexFunc(objects, func(v *corev1.PersistentVolume) bool { return v.Name == n.Volume }); i >= 0 {
			note.about = objects[i]
		}
		notices = append(notices, note)
	}
	return notices
}

// conditions are about what could not be read, and about mount options of volumes.
func (s state) conditions() []notice {
	var all []notice
	if s.table.err != nil {
		all = append(all, unreadableTable(s.table, wellknown.TargetsConfigMap,
			"nothing is written until it is corrected; without it, it is rebuilt from the volumes"))
	}
	if s.pinned.err != nil {
		meanwhile := "what it said before stays in force until it is corrected or deleted"
		if s.pinned.table == nil {
			meanwhile = "no port is given until it is corrected or deleted"
		}
		n := unreadableTable(s.pinned, wellknown.PinnedConfigMap, meanwhile)
		n.about = s.pinned.object
		all = append(all, n)
	}
	return slices.Concat(all, pollConditions(s.inventory), fileSystemConditions(s.inventory), optionConditions(s.volumes))
}

// blocker is what keeps everything from being decided, for the claims that wait; "" while it is only
// time.
func (s state) blocker() string {
	switch {
	case s.table.err != nil:
		return fmt.Sprintf("ConfigMap %s, which cannot be read: %v", wellknown.TargetsConfigMap, s.table.err)
	case s.table.lost() && s.pinned.table == nil:
		return fmt.Sprintf("ConfigMap %s, which cannot be read: %v", wellknown.PinnedConfigMap, s.pinned.err)
	}
	return ""
}

func unreadableTable(d document, name, meanwhile string) notice {
	return notice{
		key: name + " " + d.content(), level: slog.LevelError, reason: wellknown.EventTableUnreadable,
		message: fmt.Sprintf("ConfigMap %s cannot be read: %v; %s", name, d.err, meanwhile),
	}
}

// pollConditions are about the latest poll as a whole.
func pollConditions(i inventory) []notice {
	switch {
	case i.failure != nil:
		return []notice{condition("list "+causeOf(i.failure), wellknown.EventDiscoveryFailed, fmt.Sprintf(
			"file systems could not be listed, so the table stays as it is: %s. %s", apiMessage(i.failure), advice(i.failure)))}
	case i.listsNothing():
		return []notice{condition("list nothing", wellknown.EventDiscoveryFailed,
			"the EFS API lists no file system, so the table stays as it is. Check the region (--aws-region) and the account of the manager's AWS credentials")}
	}
	return nil
}

// excludedNotice is about settings that leave no file system to use.
func excludedNotice(s targets.Snapshot) (notice, bool) {
	if len(s.Excluded) == 0 || len(s.FileSystems) > 0 {
		return notice{}, false
	}
	ids := slices.Sorted(maps.Keys(s.Excluded))
	return condition("excluded", wellknown.EventFileSystemsExcluded, fmt.Sprintf(
		"the EFS API lists %s, and the manager's settings leave none of them. %s: %s", someOf(ids), ids[0], s.Excluded[ids[0]])), true
}

func notStored(err error) notice {
	return notice{key: "not stored " + causeOf(err), level: slog.LevelError, reason: wellknown.EventTableNotStored, message: fmt.Sprintf(
		"the table could not be stored, so new file systems and addresses wait and what is stored stays in force: %v. Correct what the apiserver "+
			"says; if the ConfigMap is too large, take other keys out of it, or restrict discovery with --file-system-ids or --file-system-tags", err)}
}

// fileSystemConditions are about single file systems, those with one cause in one: there can be a
// thousand.
func fileSystemConditions(i inventory) []notice {
	unconfirmed, undescribed := map[string]error{}, map[string]error{}
	for id, answer := range i.existence {
		if answer.err != nil {
			unconfirmed[id] = answer.err
		}
	}
	for key, answer := range i.points {
		if answer.err != nil {
			undescribed[key.FileSystem] = answer.err
		}
	}
	return slices.Concat(
		byCause(i.listing.Failed, "mount targets of %s could not be read, so addresses stay as they are: %s. %s"),
		byCause(undescribed, "access points of %s could not be read, so what is known of them stays as it is: %s. %s"),
		byCause(unconfirmed, "the EFS API could not say whether %s still exist, so they count as existing: %s. %s"))
}

func byCause(failed map[string]error, format string) []notice {
	ids := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		cause := causeOf(failed[id])
		ids[cause] = append(ids[cause], id)
	}
	var all []notice
	for _, cause := range slices.Sorted(maps.Keys(ids)) {
		err := failed[ids[cause][0]]
		all = append(all, condition(format+cause, // whichever file systems it hits this time
			wellknown.EventDiscoveryFailed, fmt.Sprintf(format, someOf(ids[cause]), apiMessage(err), advice(err))))
	}
	return all
}

// someOf names the first ids and counts the others.
func someOf(ids []string) string {
	const shown = 5
	if len(ids) <= shown {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(ids[:shown], ", "), len(ids)-shown)
}

func rootConflict(object, fileSystemID string) notice {
	return condition(object, wellknown.EventRootVolumeConflict, fmt.Sprintf(
		"%s is not ours but has the name that file system %s needs: delete it or move it, until then no mount Job can run there", object, fileSystemID))
}

// otherInstallations are about the file systems of each other installation.
func otherInstallations(fileSystems map[string][]string) (all []notice) {
	for _, namespace := range slices.Sorted(maps.Keys(fileSystems)) {
		subject := "file system "
		if len(fileSystems[namespace]) > 1 {
			subject = "each of the file systems "
		}
		all = append(all, condition("installation "+namespace, wellknown.EventRootVolumeConflict,
			subject+someOf(fileSystems[namespace])+" "+volumes.BelongsTo(namespace)))
	}
	return all
}
