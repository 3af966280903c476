package discovery

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// notice is an event to be, on the ConfigMap with the table and, where it is about one object,
// on that too.
type notice struct {
	kind    string // of the event: Normal or Warning
	reason  string
	message string
	about   about
}

// about is what a notice is about besides the table; mostly nothing.
type about struct {
	volume *corev1.PersistentVolume
	pinned *corev1.ConfigMap
}

// complaint is something that is wrong for a while. It is told when it begins.
type complaint struct {
	notice
	key   string // equal as long as it is the same trouble, in whatever words
	level slog.Level
}

func warning(reason, message string) notice {
	return notice{kind: corev1.EventTypeWarning, reason: reason, message: message}
}

func normal(reason, message string) notice {
	return notice{kind: corev1.EventTypeNormal, reason: reason, message: message}
}

func newsNotices(news []ports.News, objects []*corev1.PersistentVolume) []notice {
	var notices []notice
	for _, n := range news {
		note := newsNotice(n)
		if i := slices.IndexFunc(objects, func(v *corev1.PersistentVolume) bool { return v.Name == n.Volume }); i >= 0 {
			note.about.volume = objects[i]
		}
		notices = append(notices, note)
	}
	return notices
}

func newsNotice(n ports.News) notice {
	message := n.Message
	if subject := cmp.Or(n.Volume, n.FileSystem); !strings.Contains(message, subject) {
		message = subject + ": " + message
	}
	switch n.Kind {
	case ports.Found:
		return normal(wellknown.EventFileSystemFound, message)
	case ports.Gone:
		return normal(wellknown.EventFileSystemGone, message)
	case ports.Missing:
		return warning(wellknown.EventFileSystemMissing, message)
	case ports.Unusable:
		return warning(wellknown.EventFileSystemUnusable, message)
	case ports.OutOfPorts:
		return warning(wellknown.EventOutOfPorts, message)
	case ports.TableFull:
		return warning(wellknown.EventTableFull, message)
	case ports.Conflict:
	}
	return warning(wellknown.EventPortConflict, message)
}

// complaints are about what could not be read.
func (s state) complaints() []complaint {
	var all []complaint
	if s.table.err != nil {
		all = append(all, unreadableComplaint(s.table, wellknown.TargetsConfigMap,
			"nothing is written until it is mended; without it, it is rebuilt from the volumes"))
	}
	if s.pinned.err != nil {
		c := unreadableComplaint(s.pinned, wellknown.PinnedConfigMap, s.pinnedMeanwhile())
		c.about.pinned = s.pinned.object
		all = append(all, c)
	}
	all = append(all, listingComplaints(s.findings)...)
	return append(all, singleComplaints(s.findings)...)
}

// trouble is what holds everything up, for the claims that wait; "" while it is only time.
func (s state) trouble() string {
	switch {
	case s.table.err != nil:
		return fmt.Sprintf("ConfigMap %s, which cannot be read: %v", wellknown.TargetsConfigMap, s.table.err)
	case s.table.lost() && s.pinned.table == nil:
		return fmt.Sprintf("ConfigMap %s, which cannot be read: %v", wellknown.PinnedConfigMap, s.pinned.err)
	}
	return ""
}

func (s state) pinnedMeanwhile() string {
	if s.pinned.table == nil {
		return "no port is given until it is mended or deleted"
	}
	return "what it said before stays in force until it is mended or deleted"
}

func unreadableComplaint(d document, name, meanwhile string) complaint {
	return complaint{
		key: name + " " + d.content(), level: slog.LevelError,
		notice: warning(wellknown.EventTableUnreadable, fmt.Sprintf("ConfigMap %s cannot be read: %v; %s", name, d.err, meanwhile)),
	}
}

// unreadable says which ConfigMaps cannot be read.
func (s state) unreadable() map[string]bool {
	return map[string]bool{
		wellknown.TargetsConfigMap: s.table.err != nil,
		wellknown.PinnedConfigMap:  s.pinned.err != nil,
	}
}

// listingComplaints are about the latest poll as a whole.
func listingComplaints(f findings) []complaint {
	switch {
	case f.failure != nil:
		return []complaint{discoveryComplaint("list "+causeOf(f.failure), fmt.Sprintf(
			"file systems could not be listed, so the table stays as it is: %s. %s", apiWords(f.failure), advice(f.failure)))}
	case f.listsNothing():
		return []complaint{discoveryComplaint("list nothing",
			"the EFS API lists no file system, so the table stays as it is. Check the region (--aws-region) and the account of the manager's AWS credentials")}
	}
	return nil
}

func identityComplaint(message string) complaint {
	return complaint{key: "identity", level: slog.LevelWarn, notice: warning(wellknown.EventIdentityLooksWrong, message)}
}

func notStoredComplaint(err error) complaint {
	return complaint{key: "not stored " + causeOf(err), level: slog.LevelError, notice: warning(wellknown.EventTableNotStored, fmt.Sprintf(
		"the table could not be stored, so new file systems and addresses wait and what is stored stays in force: %v. Mend what the apiserver "+
			"says; if the ConfigMap is too large, take other keys out of it, or restrict discovery with --file-system-ids or --file-system-tags", err))}
}

// singleComplaints are about single file systems, those with one cause in one: there can be a
// thousand.
func singleComplaints(f findings) []complaint {
	doubts := map[string]error{}
	for id, a := range f.answers {
		if a.err != nil {
			doubts[id] = a.err
		}
	}
	unread := map[string]error{}
	for key, a := range f.points {
		if a.err != nil {
			unread[key.FileSystem] = a.err
		}
	}
	return append(
		groupedComplaints(f.listing.Failed, "mount targets of %s could not be read, so addresses stay as they are: %s. %s"),
		append(groupedComplaints(unread, "access points of %s could not be read, so what is known of them stays as it is: %s. %s"),
			groupedComplaints(doubts, "it could not be asked whether %s still exist, so they count as there: %s. %s")...)...)
}

func groupedComplaints(failed map[string]error, format string) []complaint {
	byCause := map[string][]string{}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		cause := causeOf(failed[id])
		byCause[cause] = append(byCause[cause], id)
	}
	var all []complaint
	for _, cause := range slices.Sorted(maps.Keys(byCause)) {
		ids, err := byCause[cause], failed[byCause[cause][0]]
		all = append(all, discoveryComplaint(format+cause, // whichever file systems it hits this time
			fmt.Sprintf(format, someOf(ids), apiWords(err), advice(err))))
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

func discoveryComplaint(key, message string) complaint {
	return complaint{key: key, level: slog.LevelWarn, notice: warning(wellknown.EventDiscoveryFailed, message)}
}

func strangerComplaint(object, fileSystemID string) complaint {
	return complaint{
		key: object, level: slog.LevelWarn,
		notice: warning(wellknown.EventRootVolumeConflict, fmt.Sprintf(
			"%s is not ours but has the name that file system %s needs: delete it or move it, until then no mount Job can run there", object, fileSystemID)),
	}
}
