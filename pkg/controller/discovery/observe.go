package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/pager"

	"gnuthought.com/efs-stunnel/pkg/controller/caches"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// memory is what one sync leaves for the next. All of it may be lost at any time.
type memory struct {
	assigned ports.State
	seen     map[string]efs.FileSystem
	accepted efs.Listing
	pinned   *ports.Table // the last that could be read; nil before it
	// table is the newest ConfigMap that was read or written: a cache can be behind our own
	// writes. It counts only while live says that it was read from the apiserver once.
	table *corev1.ConfigMap
	live  bool
}

// observer reads caches, and the apiserver only where a cache that is behind would cost a port.
type observer struct {
	client        kubernetes.Interface
	namespace     string
	now           func() time.Time // by the apiserver's clock
	tables        corelisters.ConfigMapLister
	pinnedTables  corelisters.ConfigMapLister
	volumeObjects corelisters.PersistentVolumeLister
	claimObjects  corelisters.PersistentVolumeClaimLister
	jobObjects    batchlisters.JobLister
}

func newObserver(client kubernetes.Interface, c *caches.Caches, options Options) observer {
	return observer{
		client: client, namespace: options.Namespace, now: options.now,
		tables:        corelisters.NewConfigMapLister(c.Table.GetIndexer()),
		pinnedTables:  corelisters.NewConfigMapLister(c.Pinned.GetIndexer()),
		volumeObjects: corelisters.NewPersistentVolumeLister(c.Volumes.GetIndexer()),
		claimObjects:  corelisters.NewPersistentVolumeClaimLister(c.Claims.GetIndexer()),
		jobObjects:    batchlisters.NewJobLister(c.Jobs.GetIndexer()),
	}
}

func (o observer) observe(ctx context.Context, f findings, demand ports.Demand, m *memory) (state, error) {
	object, err := o.tableObject(ctx, m)
	if err != nil {
		return state{}, fmt.Errorf("reading ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	s := state{table: readTable(object), findings: f, demand: demand, seen: m.seen, accepted: m.accepted, assigned: m.assigned, now: o.now()}
	if s.pinned, err = o.pinned(m); err != nil {
		return state{}, err
	}
	if s.volumes, err = o.volumes(ctx, s.table.lost() && !s.held()); err != nil {
		return state{}, fmt.Errorf("listing volumes: %w", err)
	}
	if s.claims, err = o.claims(); err != nil {
		return state{}, fmt.Errorf("listing root claims: %w", err)
	}
	if s.jobs, s.begun, err = o.jobs(); err != nil {
		return state{}, fmt.Errorf("listing mount Jobs: %w", err)
	}
	return s, nil
}

// tableObject is the ConfigMap, nil when there is none. The apiserver itself is asked at first,
// after a lost race, and before anybody believes that it is gone.
func (o observer) tableObject(ctx context.Context, m *memory) (*corev1.ConfigMap, error) {
	cached, err := o.tables.ConfigMaps(o.namespace).Get(wellknown.TargetsConfigMap)
	if err == nil && m.live {
		m.table = newest(cached, m.table)
		return m.table, nil
	}
	live, err := o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, wellknown.TargetsConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		live = nil
	case err != nil:
		return nil, err
	}
	m.table, m.live = live, true
	return live, nil
}

func newest(cached, known *corev1.ConfigMap) *corev1.ConfigMap {
	if known == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, known.ResourceVersion)
	if err == nil && order < 0 {
		return known
	}
	return cached
}

func (o observer) pinned(m *memory) (document, error) {
	object, err := o.pinnedTables.ConfigMaps(o.namespace).Get(wellknown.PinnedConfigMap)
	switch {
	case apierrors.IsNotFound(err):
		object = nil
	case err != nil:
		return document{}, fmt.Errorf("reading ConfigMap %s: %w", wellknown.PinnedConfigMap, err)
	}
	d := readPinned(object, m.pinned)
	m.pinned = d.table
	return d, nil
}

// volumes are all of the cluster's. A live list has no resourceVersion, so that the apiserver
// answers from its store.
func (o observer) volumes(ctx context.Context, live bool) ([]*corev1.PersistentVolume, error) {
	if !live {
		return o.volumeObjects.List(labels.Everything())
	}
	var all []*corev1.PersistentVolume
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return o.client.CoreV1().PersistentVolumes().List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if volume, ok := object.(*corev1.PersistentVolume); ok {
			all = append(all, volume)
		}
		return nil
	})
	return all, err
}

// claims are those of the namespace that are named like root claims.
func (o observer) claims() (map[string]*corev1.PersistentVolumeClaim, error) {
	objects, err := o.claimObjects.PersistentVolumeClaims(o.namespace).List(labels.Everything())
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, object := range objects {
		if strings.HasPrefix(object.Name, wellknown.RootVolumePrefix) {
			claims[object.Name] = object
		}
	}
	return claims, err
}

// jobs are those that are over and used up, by file system and in order, and the file systems of
// all mount Jobs.
func (o observer) jobs() (over map[string][]*batchv1.Job, begun map[string]bool, err error) {
	objects, err := o.jobObjects.Jobs(o.namespace).List(labels.Everything())
	slices.SortFunc(objects, func(a, b *batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	over, begun = map[string][]*batchv1.Job{}, map[string]bool{}
	for _, object := range objects {
		if id, ok := usedUp(object); ok {
			over[id] = append(over[id], object)
		}
		if name, err := mountjobs.Identify(object); err == nil && name.Kind == mountjobs.Mount {
			begun[name.FileSystemID] = true
		}
	}
	return over, begun, err
}
