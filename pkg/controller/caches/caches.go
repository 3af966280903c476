// Package caches keeps what the control loops observe of the cluster: one
// informer for each kind of object, trimmed to what the loops read, and the
// indexes by which they look things up. Standbys keep it warm.
package caches

import (
	"context"
	"fmt"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// Caches are all informers of the manager.
type Caches struct {
	// Of the whole cluster.
	Claims, Volumes, Classes, Nodes cache.SharedIndexInformer
	// Of the manager's namespace. Warnings are its events of that type.
	Jobs, Pods, Warnings cache.SharedIndexInformer
	// Each of one object.
	Table, Pinned cache.SharedIndexInformer

	metadata  metadata.Interface
	namespace string
	factories []informers.SharedInformerFactory
	catchUps  atomic.Pointer[[]*catchUp] // of CaughtUp while it runs; nil before
}

// New makes the informers; none runs yet, so handlers can be added. CaughtUp lists with the client for
// metadata.
func New(client kubernetes.Interface, lists metadata.Interface, namespace string) (*Caches, error) {
	trim := newTrimmer().trim
	cluster := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), informers.WithTransform(trim))
	warnings := selected(client, namespace, selectBy("type", corev1.EventTypeWarning))
	table := selected(client, namespace, selectBy(metav1.ObjectNameField, wellknown.TargetsConfigMap))
	pinned := selected(client, namespace, selectBy(metav1.ObjectNameField, wellknown.PinnedConfigMap))
	c := &Caches{
		metadata:  lists,
		namespace: namespace,
		Claims:    cluster.Core().V1().PersistentVolumeClaims().Informer(),
		Volumes:   cluster.Core().V1().PersistentVolumes().Informer(),
		Classes:   cluster.Storage().V1().StorageClasses().Informer(),
		Nodes:     cluster.Core().V1().Nodes().Informer(),
		Jobs:      own.Batch().V1().Jobs().Informer(),
		Pods:      own.Core().V1().Pods().Informer(),
		Warnings:  warnings.Core().V1().Events().Informer(),
		Table:     table.Core().V1().ConfigMaps().Informer(),
		Pinned:    pinned.Core().V1().ConfigMaps().Informer(),
		factories: []informers.SharedInformerFactory{cluster, own, warnings, table, pinned},
	}
	return c, c.addIndexers()
}

func selected(client kubernetes.Interface, namespace string, selection func(*metav1.ListOptions)) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(namespace), informers.WithTransform(newTrimmer().trim), informers.WithTweakListOptions(selection))
}

func selectBy(field, value string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, value).String() }
}

// Run runs the informers until the context ends. It returns when they have
// stopped.
func (c *Caches) Run(ctx context.Context) {
	for _, f := range c.factories {
		f.StartWithContext(ctx)
	}
	<-ctx.Done()
	for _, f := range c.factories {
		f.Shutdown()
	}
}

// Await returns when every informer has the whole of its objects.
func (c *Caches) Await(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.HasSynced) {
		return fmt.Errorf("reading the cluster's objects: %w", context.Cause(ctx))
	}
	return nil
}

// HasSynced says whether every informer has the whole of its objects.
func (c *Caches) HasSynced() bool {
	for _, k := range c.kinds() {
		if !k.informer.HasSynced() {
			return false
		}
	}
	return true
}

// kind is one kind of objects: what the informer has of it, and how the apiserver lists it.
type kind struct {
	name     string
	informer cache.SharedIndexInformer
	list     listFunc // nil where nothing is decided from the objects
}

// kinds are all that there are. Of Warnings only messages are made.
func (c *Caches) kinds() []kind {
	core, own := corev1.SchemeGroupVersion, c.namespace
	return []kind{
		{"claims", c.Claims, c.listOf(core.WithResource("persistentvolumeclaims"), metav1.NamespaceAll)},
		{"volumes", c.Volumes, c.listOf(core.WithResource("persistentvolumes"), metav1.NamespaceAll)},
		{"storage classes", c.Classes, c.listOf(storagev1.SchemeGroupVersion.WithResource("storageclasses"), metav1.NamespaceAll)},
		{"nodes", c.Nodes, c.listOf(core.WithResource("nodes"), metav1.NamespaceAll)},
		{"Jobs", c.Jobs, c.listOf(batchv1.SchemeGroupVersion.WithResource("jobs"), own)},
		{"pods", c.Pods, c.listOf(core.WithResource("pods"), own)},
		{"events", c.Warnings, nil},
		{"ConfigMap " + wellknown.TargetsConfigMap, c.Table,
			c.listOf(core.WithResource("configmaps"), own, selectBy(metav1.ObjectNameField, wellknown.TargetsConfigMap))},
		{"ConfigMap " + wellknown.PinnedConfigMap, c.Pinned,
			c.listOf(core.WithResource("configmaps"), own, selectBy(metav1.ObjectNameField, wellknown.PinnedConfigMap))},
	}
}
