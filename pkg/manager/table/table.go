package table

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/manager/caches"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/queue"
)

// tableMemory is what a sync of the table keeps for the next one. It is rebuilt after a restart.
type tableMemory struct {
	memory
	pinned *ports.Table // the last that could be read; nil before it
	// stored is the newest ConfigMap that was read or written: a cache may be behind our own writes.
	stored *corev1.ConfigMap
	live   bool   // stored was read from the apiserver, and no write has failed since
	counts [2]int // of the file systems that are used and excluded, as they were last logged
}

// syncTable gives ports and stores them. The table is stored before anything is published: what
// names a port must find it there.
func (c *Controller) syncTable(ctx context.Context, _ string) (again time.Duration, err error) {
	s := c.observeTable()
	return c.applyTable(ctx, s, c.options.plan(s))
}

func (c *Controller) observeTable() state {
	s := state{
		memory: c.table.memory, begun: map[string]bool{}, inventory: inventory{polled: true}, now: c.options.Now(),
		demand: c.options.Demand(), made: c.options.Made(),
	}
	if c.poller != nil {
		s.inventory = c.poller.latest()
	}
	cached := c.caches.TargetsConfigMap()
	s.unconfirmed = cached == nil || !c.table.live
	s.table = read(newest(cached, c.table.stored), nil, ports.Decode)
	s.pinned = readPinned(c.caches.PinnedConfigMap(), c.table.pinned)
	c.table.pinned = s.pinned.table
	if c.caches.Services != nil {
		s = s.withServers(readServers(caches.All[*corev1.Service](c.caches.Services)))
		s.pods = readServerPods(c.caches, s.servers)
		s.sizes = readSizes(s.sizes, s.pods)
	}
	s.volumes = caches.All[*corev1.PersistentVolume](c.caches.Volumes)
	for _, job := range caches.All[*batchv1.Job](c.caches.Jobs) {
		if name, err := mountjobs.Identify(job); err == nil && name.Kind.HasOperations() {
			s.begun[name.FileSystemID] = true
		}
	}
	return s
}

func newest(cached, known *corev1.ConfigMap) *corev1.ConfigMap {
	if cached == nil || known == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, known.ResourceVersion)
	if err == nil && order < 0 {
		return known
	}
	return cached
}

// logCounts says how many file systems are used, whenever that has changed.
func (c *Controller) logCounts(s targets.Snapshot) {
	counts := [2]int{len(s.FileSystems), len(s.Excluded)}
	if !s.Listed || counts == c.table.counts {
		return
	}
	c.table.counts = counts
	c.options.Log.Info("file systems listed", "used", counts[0], "excluded", counts[1])
}

// applyTable stores the table if it changed. After a conflict with another client's write, the next
// sync reads the table again.
func (c *Controller) applyTable(ctx context.Context, s state, p plan) (again time.Duration, err error) {
	if p.readLive {
		if s, err = c.readLive(ctx, s); err != nil {
			c.hold(fmt.Sprintf("the table of file systems, ConfigMap %s, which cannot be read or checked: %v", wellknown.TargetsConfigMap, err))
			return 0, err
		}
		p = c.options.plan(s)
	}
	c.metrics.show(p.numbers)
	c.logCounts(p.snapshot)
	if p.decision == nil {
		c.report(ctx, &c.tableEvents, s.table.object, p.notices)
		c.hold(s.blocker())
		return 0, nil
	}
	stored, err := c.store(ctx, s.table.object, p)
	if err == nil {
		c.table.memory, c.table.stored = p.memory, stored
		c.report(ctx, &c.tableEvents, stored, p.notices)
		c.publish(p, stored)
		return 0, nil
	}
	c.table.live = false // what was read cannot be trusted
	switch {
	case objects.IsRace(err):
		c.decision.Store(nil)
		return settleTime, nil
	case ctx.Err() != nil:
		return 0, err
	}
	c.metrics.notStored.Inc()
	c.publishStored(ctx, s, p, err)
	return 0, err
}

// readLive reads the table from the apiserver: at first, after a failed write, and before it counts
// as lost. A lost table is rebuilt from the volumes, which are listed, too, because a volume that the
// cache does not have yet would lose its port.
func (c *Controller) readLive(ctx context.Context, s state) (state, error) {
	object, err := c.client.CoreV1().ConfigMaps(c.options.Namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		object, err = nil, nil
	case err != nil:
		return s, fmt.Errorf("reading ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	c.table.stored, c.table.live = object, true
	s.table, s.live = read(object, nil, ports.Decode), true
	if s.table.lost() && !s.isHeld() {
		s.volumes, err = c.listVolumes(ctx)
	}
	return s, err
}

// listVolumes lists without a resourceVersion, so that the apiserver answers from its store.
func (c *Controller) listVolumes(ctx context.Context) (all []*corev1.PersistentVolume, err error) {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.client.CoreV1().PersistentVolumes().List(ctx, options)
	})
	if err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if volume, ok := object.(*corev1.PersistentVolume); ok {
			all = append(all, volume)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	return all, nil
}

// store writes the table if it changed, and returns the ConfigMap as it is then.
func (c *Controller) store(ctx context.Context, object *corev1.ConfigMap, p plan) (stored *corev1.ConfigMap, err error) {
	if !p.write {
		return object, nil
	}
	next := withTable(object, c.options.Namespace, p.table)
	configMaps := c.client.CoreV1().ConfigMaps(c.options.Namespace)
	if object == nil {
		stored, err = configMaps.Create(ctx, next, metav1.CreateOptions{})
	} else {
		stored, err = configMaps.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	c.options.Log.Info("table stored", "targets", len(p.table.Targets))
	return stored, nil
}

// publishStored publishes the stored table, because the apiserver refuses the planned one: root volumes
// are repaired, and nothing is removed or corrected. Absences are still counted, because the table may
// become small enough when file systems leave it.
func (c *Controller) publishStored(ctx context.Context, s state, refused plan, err error) {
	c.table.assigned.Absences, c.table.assigned.CountedAt = refused.assigned.Absences, refused.assigned.CountedAt
	notices := append(s.conditions(), notStored(err))
	for _, n := range refused.notices {
		if n.Reason == wellknown.EventIdentityLooksWrong || n.Reason == wellknown.EventFileSystemsExcluded {
			notices = append(notices, n)
		}
	}
	c.report(ctx, &c.tableEvents, s.table.object, notices)
	if s.table.table == nil {
		c.hold(fmt.Sprintf("the table of file systems, ConfigMap %s, which cannot be written: %v", wellknown.TargetsConfigMap, err))
		return
	}
	p := c.options.follow(s, *s.table.table, nil)
	p.missing, p.points, p.decision.removes = refused.missing, refused.points, false
	c.publish(p, s.table.object)
}

// document is one of the two ConfigMaps with a table, read.
type document struct {
	object *corev1.ConfigMap // nil when there is none
	table  *ports.Table      // nil when the ConfigMap has none, and after an error
	err    error
}

// lost says that the table is missing: only volumes have its ports.
func (d document) lost() bool { return d.table == nil && d.err == nil }

// targets are those of the table, none without one.
func (d document) targets() map[string]ports.Target {
	if d.table == nil {
		return nil
	}
	return d.table.Targets
}

func (d document) content() string {
	if d.object == nil {
		return ""
	}
	return d.object.Data[wellknown.TargetsKey]
}

// readPinned reads the administrator's ConfigMap; a missing one is empty. While it cannot be read,
// the table before stays in force: a port that it reserves must not go to another file system.
func readPinned(object *corev1.ConfigMap, before *ports.Table) document {
	d := read(object, &ports.Table{}, ports.DecodePinned)
	if d.err != nil {
		d.table = before
	}
	return d
}

// read takes an empty ConfigMap for a missing one. In one that has only other keys, the key is more
// likely misspelled.
func read(object *corev1.ConfigMap, missing *ports.Table, decode func([]byte) (ports.Table, error)) document {
	if object == nil || len(object.Data)+len(object.BinaryData) == 0 {
		return document{object: object, table: missing}
	}
	text, ok := object.Data[wellknown.TargetsKey]
	if !ok {
		return document{object: object, err: errors.New("it has other keys, but not " + wellknown.TargetsKey)}
	}
	table, err := decode([]byte(text))
	if err != nil {
		return document{object: object, err: fmt.Errorf("%s: %w", wellknown.TargetsKey, err)}
	}
	return document{object: object, table: &table}
}

// withTable is the ConfigMap with a table. What others have added stays.
func withTable(object *corev1.ConfigMap, namespace string, table ports.Table) *corev1.ConfigMap {
	next := object.DeepCopy()
	if next == nil {
		next = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: wellknown.TargetsConfigMap,
			Labels: map[string]string{
				"app.kubernetes.io/name": "efs-stunnel",
				wellknown.LabelManagedBy: wellknown.ManagerDeployment,
			},
		}}
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	next.Data[wellknown.TargetsKey] = string(ports.Encode(table))
	return next
}

// viewInterval is the time between two comparisons of the view with a table that does not change. Agents that start
// while somebody has changed or deleted the view read the whole table.
const viewInterval = time.Minute

// syncView writes the view of the table as the apiserver has it, whoever wrote it and whether or not it can be read:
// that is the agents' to judge. Until the view follows a change, agents wait, and then read the table itself.
func (c *Controller) syncView(ctx context.Context, _ string) (again time.Duration, err error) {
	table := c.caches.TargetsConfigMap()
	if table == nil {
		return 0, nil // the view stays: it is no other table's
	}
	want, err := ports.NewView(table)
	if err != nil {
		return 0, queue.Terminal(err)
	}
	configMaps := c.client.CoreV1().ConfigMaps(c.options.Namespace)
	view, err := configMaps.Get(ctx, want.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configMaps.Create(ctx, want, metav1.CreateOptions{})
	case err != nil || equality.Semantic.DeepEqual(view.Data, want.Data) && equality.Semantic.DeepEqual(view.BinaryData, want.BinaryData):
	default:
		view.Data, view.BinaryData = want.Data, want.BinaryData
		_, err = configMaps.Update(ctx, view, metav1.UpdateOptions{})
	}
	if objects.IsRace(err) {
		return settleTime, nil
	}
	if err != nil {
		return 0, fmt.Errorf("writing ConfigMap %s: %w", wellknown.ViewConfigMap, err)
	}
	return viewInterval, nil
}
