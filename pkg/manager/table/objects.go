package table

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// objectsInterval is the time between two looks at what changes without an event: the clock, whether the objects'
// definitions are installed, and whether another installation is gone.
const objectsInterval = time.Minute

// objectsMemory has the objects as they were last read or written. Only the loop of objects uses it.
type objectsMemory struct {
	known         bool // the objects were read, and none that is needed is another installation's
	missing       bool // the definitions were not installed at the last try
	fileSystems   map[string]v1alpha1.FileSystemStatus
	installations map[string]v1alpha1.InstallationStatus
	foreign       map[string]*unstructured.Unstructured // FileSystem objects of other installations
	reported      map[string]string                     // the installation that was logged for a file system
}

// report reports notices, and has the objects follow if a condition has changed.
func (c *Controller) report(ctx context.Context, r *reporter, table *corev1.ConfigMap, notices []notice) {
	if r.report(ctx, table, notices) {
		c.queue.AddAfter(objectsKey, settleTime)
	}
}

// syncObjects writes the FileSystem objects and the Installation that differ from what is true, and deletes
// those of file systems that are gone. Without the definitions, it says so once and tries again later.
func (c *Controller) syncObjects(ctx context.Context, _ string) (again time.Duration, err error) {
	if c.options.Dynamic == nil {
		return 0, nil
	}
	err = c.writeObjects(ctx)
	if !apierrors.IsNotFound(err) {
		c.objects.missing = false
		return objectsInterval, err
	}
	if !c.objects.missing {
		c.options.Log.Warn("file systems are not shown as objects: their definitions are not installed")
	}
	c.objects = objectsMemory{missing: true}
	return objectsInterval, nil
}

func (c *Controller) writeObjects(ctx context.Context) error {
	if err := c.readObjects(ctx); err != nil {
		return err
	}
	now, holding := c.options.Now(), c.holding()
	fileSystems, all := c.shown.Load().fileSystems(c.Snapshot(), holding, c.objects.fileSystems, now)
	for id, fs := range fileSystems {
		c.keepTasks(id, fs.Conditions)
	}
	errs := []error{c.withoutForeign(ctx, fileSystems)}
	w := objects.StatusWriter{Client: c.options.Dynamic, Resource: v1alpha1.FileSystems(), Kind: v1alpha1.FileSystemKind}
	w.Installation = c.options.Namespace
	errs = append(errs, writeChanged(ctx, w, c.objects.fileSystems, fileSystems))
	if all {
		errs = append(errs, c.deleteOthers(ctx, fileSystems))
	}
	s := v1alpha1.InstallationStatus{Leader: c.options.Leader, Version: buildinfo.Read().Version}
	s.Conditions = v1alpha1.NewConditions(status.Installation, holding[installation],
		c.objects.installations[c.options.Namespace].Conditions, now)
	w = objects.StatusWriter{Client: c.options.Dynamic, Resource: v1alpha1.Installations(), Kind: v1alpha1.InstallationKind}
	errs = append(errs, writeChanged(ctx, w, c.objects.installations,
		map[string]v1alpha1.InstallationStatus{c.options.Namespace: s}))
	for _, err := range errs {
		if apierrors.IsNotFound(err) {
			return err
		}
		c.objects.known = c.objects.known && !apierrors.IsInvalid(err) // it may be another installation's by now
	}
	return logging.Errors(errs...)
}

// withoutForeign leaves out the file systems whose objects are other installations'. Those of installations that
// are gone are deleted, and then written anew.
func (c *Controller) withoutForeign(ctx context.Context, wanted map[string]v1alpha1.FileSystemStatus) error {
	var names []string
	for id := range wanted {
		if object := c.objects.foreign[id]; object != nil && installationOf(object) != "" {
			names = append(names, installationOf(object))
		}
	}
	namespaces, err := objects.Reader{Client: c.client}.Namespaces(ctx, names)
	errs := []error{err}
	for id, object := range c.objects.foreign {
		owner := installationOf(object)
		if _, isWanted := wanted[id]; !isWanted {
			continue
		}
		c.objects.known = false // it is read again each time, because it may be deleted
		if err == nil && namespaces[owner] == nil {
			errs = append(errs, c.deleteObject(ctx, id, objects.OnlyThis(object)))
			continue
		}
		delete(wanted, id)
		if c.objects.reported[id] != owner {
			c.objects.reported[id] = owner
			c.options.Log.Warn("object of a file system is another installation's, and left alone", "fileSystem", id, "namespace", owner)
		}
	}
	return logging.Errors(errs...)
}

func (c *Controller) deleteObject(ctx context.Context, id string, o metav1.DeleteOptions) error {
	err := c.options.Dynamic.Resource(v1alpha1.FileSystems()).Delete(ctx, id, o)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting FileSystem %s: %w", id, err)
	}
	return nil
}

// readObjects reads the objects once. Afterwards, only this replica writes those of its installation while it leads.
func (c *Controller) readObjects(ctx context.Context) (err error) {
	if c.objects.known {
		return nil
	}
	memory := objectsMemory{known: true, missing: c.objects.missing, foreign: map[string]*unstructured.Unstructured{}, reported: c.objects.reported}
	if memory.reported == nil {
		memory.reported = map[string]string{}
	}
	memory.fileSystems, err = readAll[v1alpha1.FileSystemStatus](ctx, c, v1alpha1.FileSystems(), func(object *unstructured.Unstructured) bool {
		if installationOf(object) == c.options.Namespace {
			return true
		}
		memory.foreign[object.GetName()] = object
		return false
	})
	if err == nil {
		memory.installations, err = readAll[v1alpha1.InstallationStatus](ctx, c, v1alpha1.Installations(),
			func(*unstructured.Unstructured) bool { return true })
	}
	if err == nil {
		c.objects = memory
	}
	return err
}

func installationOf(object *unstructured.Unstructured) string {
	return object.GetLabels()[wellknown.LabelInstallation]
}

// readAll reads the status of the objects that are kept, by name. One that cannot be read is written anew.
func readAll[S any](
	ctx context.Context, c *Controller, resource schema.GroupVersionResource, keep func(*unstructured.Unstructured) bool,
) (map[string]S, error) {
	list, err := c.options.Dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", resource.Resource, err)
	}
	all := map[string]S{}
	for i := range list.Items {
		item := &list.Items[i]
		if !keep(item) {
			continue
		}
		var kept S
		if typed, err := v1alpha1.Read[v1alpha1.Observed[S]](item); err == nil {
			kept = typed.Status
		}
		all[item.GetName()] = kept
	}
	return all, nil
}

// writeChanged writes each status that differs from that of before, and records it there.
func writeChanged[S any](ctx context.Context, w objects.StatusWriter, before, wanted map[string]S) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if old, ok := before[name]; ok && reflect.DeepEqual(old, wanted[name]) {
			continue
		}
		err := w.Write(ctx, name, wanted[name])
		if apierrors.IsNotFound(err) {
			return err
		}
		if err == nil {
			before[name] = wanted[name]
		}
		errs = append(errs, err)
	}
	return logging.Errors(errs...)
}

// deleteOthers deletes the objects of file systems that left the table.
func (c *Controller) deleteOthers(ctx context.Context, wanted map[string]v1alpha1.FileSystemStatus) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.objects.fileSystems)) {
		if _, stays := wanted[name]; stays {
			continue
		}
		if err := c.deleteObject(ctx, name, metav1.DeleteOptions{}); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(c.objects.fileSystems, name)
	}
	return logging.Errors(errs...)
}

type taskType struct{ fileSystemID, name string }

// TaskEnded records what the last Job of a task has found wrong with a file system, of a type of condition.
func (c *Controller) TaskEnded(fileSystemID, name string, found []status.Condition) {
	c.tasks.Store(taskType{fileSystemID, name}, found)
	c.queue.AddAfter(objectsKey, settleTime)
}

// holding returns the conditions of all loops, by subject.
func (c *Controller) holding() map[status.Subject][]status.Condition {
	all := map[status.Subject][]status.Condition{}
	add := func(conditions ...status.Condition) {
		for _, found := range conditions {
			all[found.Subject] = append(all[found.Subject], found)
		}
	}
	if c.options.ClockWrong != nil {
		if why := c.options.ClockWrong(); why != "" {
			add(status.Condition{Subject: installation, Reason: status.ClockWrong, Message: why, Since: c.options.Now()})
		}
	}
	c.tasks.Range(func(_, found any) bool {
		add(found.([]status.Condition)...) //nolint:errcheck // of another type, it panics
		return true
	})
	for _, r := range []*reporter{&c.tableEvents, &c.rootEvents} {
		if holding := r.holding.Load(); holding != nil {
			add(*holding...)
		}
	}
	return all
}

// keepTasks leaves a condition as another leader has written it until a Job of the task has ended.
func (c *Controller) keepTasks(id string, conditions []metav1.Condition) {
	for i, condition := range conditions {
		_, ended := c.tasks.Load(taskType{id, condition.Type})
		isTask := condition.Type == status.Swept || condition.Type == status.Surveyed
		before := meta.FindStatusCondition(c.objects.fileSystems[id].Conditions, condition.Type)
		if isTask && !ended && before != nil {
			conditions[i] = *before
		}
	}
}

// fileSystems returns the wanted status of each file system that is in the table, or that is listed and may
// be used. known is false while there is no table, so that no object is deleted.
func (p *plan) fileSystems(
	snapshot targets.Snapshot, holding map[status.Subject][]status.Condition,
	before map[string]v1alpha1.FileSystemStatus, now time.Time,
) (wanted map[string]v1alpha1.FileSystemStatus, known bool) {
	if p == nil {
		return nil, false
	}
	wanted = map[string]v1alpha1.FileSystemStatus{}
	for _, id := range slices.AppendSeq(slices.Collect(maps.Keys(p.table.Targets)), maps.Keys(snapshot.FileSystems)) {
		target := p.table.Targets[id]
		fs := v1alpha1.FileSystemStatus{DisplayName: target.Name, Port: target.Port, Source: v1alpha1.SourceEFS, MountTargets: mountTargets(target)}
		if _, pinned := p.pinned[id]; pinned {
			fs.Source = v1alpha1.SourcePinned
		}
		if _, isServer := p.servers[id]; isServer {
			fs.Source = v1alpha1.SourceServer
		}
		found := holding[status.Subject{Kind: status.FileSystem, Name: id}]
		found = withUnusable(found, snapshot.FileSystems[id].Unusable, now)
		fs.Conditions = v1alpha1.NewConditions(status.FileSystem, found, before[id].Conditions, now)
		fs.Conditions = p.withSizes(id, fs.Conditions, before[id].Conditions)
		wanted[id] = fs
	}
	return wanted, snapshot.Known
}

// withSizes leaves out whether sizes are enforced, unless the server has said it. What another leader has written stays
// until it says it again.
func (p *plan) withSizes(id string, conditions, before []metav1.Condition) []metav1.Condition {
	said, known := p.sizes[id]
	if said != "" {
		return conditions
	}
	conditions = slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return c.Type == status.SizesEnforced })
	_, isServer := p.servers[id]
	if was := meta.FindStatusCondition(before, status.SizesEnforced); isServer && !known && was != nil {
		return append(conditions, *was)
	}
	return conditions
}

// withUnusable adds that no volume can be put on a file system, if no condition says why.
func withUnusable(holding []status.Condition, why string, now time.Time) []status.Condition {
	said := slices.ContainsFunc(holding, func(c status.Condition) bool { return c.TypeOf() == status.Usable })
	if why != "" && !said {
		return append(holding, status.Condition{Reason: wellknown.EventFileSystemUnusable, Message: why, Since: now})
	}
	return holding
}

// mountTargets returns the addresses by zone, or by subnet where no zone is known.
func mountTargets(target ports.Target) (all []v1alpha1.MountTarget) {
	families := []map[string]netip.Addr{target.AddressByZone, target.IPv6ByZone}
	if len(target.Zones()) == 0 {
		families = []map[string]netip.Addr{target.AddressBySubnet, target.IPv6BySubnet}
	}
	for _, family := range families {
		for location, address := range family {
			all = append(all, v1alpha1.MountTarget{Location: location, Address: address.String()})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.MountTarget) int {
		return strings.Compare(a.Location+" "+a.Address, b.Location+" "+b.Address)
	})
	return all
}
