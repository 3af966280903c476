package table

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/manager/awserrors"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// notice is an event on the ConfigMap with the table: a condition, or what has happened.
type notice struct {
	status.Condition

	happened bool           // it has no end; of the condition, only reason and message count
	about    runtime.Object // gets the event, too; nil for none
}

// installation is the subject of conditions that are not about one file system.
var installation = status.Subject{Kind: status.Installation}

// condition is one of the whole installation.
func condition(detail, reason, message string) notice {
	return notice{Condition: status.Condition{Subject: installation, Reason: reason, Message: message, Detail: detail}}
}

func ofFileSystem(id, detail, reason, message string) notice {
	n := condition(detail, reason, message)
	n.Subject = status.Subject{Kind: status.FileSystem, Name: id}
	return n
}

// reporter writes notices to events and the log. Only one loop uses it.
type reporter struct {
	Options
	set     status.Set
	holding atomic.Pointer[[]status.Condition] // those of the set, for the loop of objects
}

// report takes all conditions that hold. It returns whether one has changed.
func (r *reporter) report(ctx context.Context, table *corev1.ConfigMap, notices []notice) (changed bool) {
	var found []status.Condition
	about := map[[2]any]runtime.Object{} // by reference and detail
	for _, n := range notices {
		if !n.happened {
			found, about[[2]any{n.Reference(), n.Detail}] = append(found, n.Condition), n.about
			continue
		}
		r.Log.InfoContext(ctx, "discovery recorded an event", "reason", n.Reason, "message", n.Message)
		for _, object := range r.objects(n, table) {
			r.Events.Event(object, corev1.EventTypeNormal, n.Reason, events.Cut(n.Message))
		}
	}
	changes := r.set.Update(r.Now(), found)
	events.Conditions{
		Events: r.Events,
		Log:    func(status.Subject) *slog.Logger { return r.Log },
		Objects: func(c status.Condition) ([]runtime.Object, map[string]string) {
			return r.objects(notice{Condition: c, about: about[[2]any{c.Reference(), c.Detail}]}, table), nil
		},
	}.Report(ctx, changes)
	holding := r.set.Conditions()
	r.holding.Store(&holding)
	return !changes.IsZero()
}

// objects returns the objects that get the event of a notice. While there is no ConfigMap, events name it. It gets
// none about the options of single volumes, which can be thousands.
func (r *reporter) objects(n notice, table *corev1.ConfigMap) (objects []runtime.Object) {
	if n.about != nil {
		objects = append(objects, n.about)
	}
	switch isOption := n.Subject.Kind == status.Volume && n.Reason == wellknown.EventMountOptionHarmful; {
	case isOption:
	case table != nil:
		objects = append(objects, table)
	default:
		objects = append(objects, &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.Namespace, Name: wellknown.TargetsConfigMap})
	}
	return objects
}

func (c *Controller) recordOn(volume *corev1.PersistentVolume, reason, message string) {
	c.options.Events.Event(volume, corev1.EventTypeWarning, reason, events.Cut(message))
}

// portNotices are about the events of ports.Assign: on the table, and on the volumes that they name.
func portNotices(changes []ports.Event, objects []*corev1.PersistentVolume) []notice {
	var notices []notice
	for _, n := range changes {
		note := notice{happened: !n.IsCondition(), Condition: status.Condition{
			Subject: status.Subject{Kind: status.FileSystem, Name: n.FileSystem}, Reason: n.Reason, Message: n.Message, Detail: n.Message,
		}}
		if n.Volume != "" {
			note.Subject = status.Subject{Kind: status.Volume, Name: n.Volume}
		}
		if !strings.Contains(n.Message, note.Subject.Name) {
			note.Message = note.Subject.Name + ": " + n.Message
		}
		if i := slices.IndexFunc(objects, func(v *corev1.PersistentVolume) bool { return v.Name == n.Volume }); i >= 0 {
			note.about = objects[i]
		}
		notices = append(notices, note)
	}
	return notices
}

// conditions are about ports, what could not be read, and mount options of volumes.
func (s state) conditions() []notice {
	all := portNotices(s.onPorts, s.volumes)
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
	return slices.Concat(all, s.serverConditions(), pollConditions(s.inventory), fileSystemConditions(s.inventory), optionConditions(s.volumes))
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
	return condition(name+" "+d.content(), wellknown.EventTableUnreadable, fmt.Sprintf("ConfigMap %s cannot be read: %v; %s", name, d.err, meanwhile))
}

// listsNothing is the detail of the condition that the EFS API lists no file system.
const listsNothing = "list nothing"

// pollConditions are about the latest poll as a whole.
func pollConditions(i inventory) []notice {
	switch {
	case i.failure != nil:
		return []notice{condition("list "+awserrors.Cause(i.failure), wellknown.EventDiscoveryFailed, fmt.Sprintf(
			"file systems could not be listed, so the table stays as it is: %s. %s", awserrors.Message(i.failure), awserrors.Advice(i.failure)))}
	case i.listed() && i.listing.Complete && len(i.listing.FileSystems) == 0:
		return []notice{condition(listsNothing, wellknown.EventDiscoveryFailed,
			"the EFS API lists no file system, so the table stays as it is. Check the region (--aws-region) and the account of the manager's AWS credentials")}
	}
	return nil
}

// exclusion is about settings that leave no file system to use.
func exclusion(s targets.Snapshot) []notice {
	if len(s.Excluded) == 0 || len(s.FileSystems) > 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(s.Excluded))
	return []notice{condition("excluded", wellknown.EventFileSystemsExcluded, fmt.Sprintf(
		"the EFS API lists %s, and the manager's settings leave none of them. %s: %s", status.FirstFew(ids), ids[0], s.Excluded[ids[0]]))}
}

func notStored(err error) notice {
	return condition("not stored "+awserrors.Cause(err), wellknown.EventTableNotStored, fmt.Sprintf(
		"the table could not be stored, so new file systems and addresses wait and what is stored stays in force: %v. Correct what the apiserver "+
			"says; if the ConfigMap is too large, take other keys out of it, or targets without volumes, once --file-system-ids or --file-system-tags keep them out", err))
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
		cause := awserrors.Cause(failed[id])
		ids[cause] = append(ids[cause], id)
	}
	var all []notice
	for _, cause := range slices.Sorted(maps.Keys(ids)) {
		err := failed[ids[cause][0]]
		all = append(all, condition(format+cause, // whichever file systems it hits this time
			wellknown.EventDiscoveryFailed, fmt.Sprintf(format, status.FirstFew(ids[cause]), awserrors.Message(err), awserrors.Advice(err))))
	}
	return all
}

func rootConflict(object, fileSystemID string) notice {
	return ofFileSystem(fileSystemID, object, wellknown.EventRootVolumeConflict, fmt.Sprintf(
		"%s is not ours but has the name that file system %s needs: delete it or move it, until then no mount Job can run there", object, fileSystemID))
}

func otherInstallations(fileSystems map[string][]string) (all []notice) {
	for _, namespace := range slices.Sorted(maps.Keys(fileSystems)) {
		subject := "file system "
		if len(fileSystems[namespace]) > 1 {
			subject = "each of the file systems "
		}
		all = append(all, ofFileSystem(fileSystems[namespace][0], "installation "+namespace, wellknown.EventRootVolumeConflict,
			subject+status.FirstFew(fileSystems[namespace])+" "+volumes.BelongsTo(namespace)))
	}
	return all
}

// maxOptionEvents is how many volumes get an event: there can be thousands, of one class.
const maxOptionEvents = 100

// optionConditions are about volumes with a mount option that has pods write elsewhere: one on each volume, and
// one on the table for all of them.
func optionConditions(objects []*corev1.PersistentVolume) (all []notice) {
	var names []string
	for _, object := range objects {
		if why := harmfulOption(object); why != "" {
			n := condition("", wellknown.EventMountOptionHarmful, why+". Edit the volume's spec.mountOptions, and restart its pods")
			n.Subject = status.Subject{Kind: status.Volume, Name: object.Name}
			n.about = object
			all, names = append(all, n), append(names, object.Name)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(names)
	slices.SortFunc(all, func(a, b notice) int { return strings.Compare(a.Subject.Name, b.Subject.Name) })
	all = all[:min(len(all), maxOptionEvents)]
	return append(all, condition("mount options", wellknown.EventMountOptionHarmful, fmt.Sprintf(
		"mount options of %s may have pods write elsewhere than in the volume: kubectl efs-stunnel doctor says why", status.FirstFew(names))))
}

// harmfulOption is about volumes whose ports are corrected, too; others are not ours to judge.
func harmfulOption(object *corev1.PersistentVolume) string {
	if object == nil {
		return ""
	}
	if volume := ports.VolumeOf(object); !volume.Loopback || volume.On.FileSystem == "" {
		return ""
	}
	return volumes.HarmfulMountOption(object)
}
