// Package caches has what the control loops observe of the cluster: an informer
// for each kind of object, trimmed to what the loops read, with the indexes that
// they read by. Standbys run the informers too, so that a new leader only waits
// until they have caught up with the apiserver.
package caches

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	batch "k8s.io/client-go/informers/batch/v1"
	core "k8s.io/client-go/informers/core/v1"
	storage "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// Caches are all informers of the manager.
type Caches struct {
	// Of the whole cluster.
	Claims, Volumes, Classes, Nodes cache.SharedIndexInformer
	// Of the manager's namespace. Warnings are its events of that type.
	Jobs, Pods, Warnings cache.SharedIndexInformer
	// Each of one object.
	Table, Pinned cache.SharedIndexInformer
	// Services are those of the manager's namespace; nil without WatchServices.
	Services cache.SharedIndexInformer

	metadata  metadata.Interface
	namespace string
	catchUps  atomic.Pointer[[]*catchUp] // of CaughtUp while it runs; nil before
}

// New makes the informers; none runs yet, so handlers can be added. CaughtUp lists with the client for
// metadata.
func New(client kubernetes.Interface, lists metadata.Interface, namespace string) (*Caches, error) {
	const cluster = metav1.NamespaceAll
	c := &Caches{
		metadata: lists, namespace: namespace,
		Claims:   core.NewPersistentVolumeClaimInformer(client, cluster, 0, cache.Indexers{byUID: index(uidOf), byProvisioner: index(provisionerOf), bySource: index(sourceOf)}),
		Volumes:  core.NewPersistentVolumeInformer(client, 0, cache.Indexers{byClaim: index(otherClaimsOf), byFileSystem: index(unsettledOn), byUnbound: index(unboundOf)}),
		Classes:  storage.NewStorageClassInformer(client, 0, cache.Indexers{}),
		Nodes:    core.NewNodeInformer(client, 0, cache.Indexers{}),
		Jobs:     batch.NewJobInformer(client, namespace, 0, cache.Indexers{byFileSystem: index(fileSystemOf), byOperation: index(operationsOf)}),
		Pods:     core.NewPodInformer(client, namespace, 0, cache.Indexers{byOwner: index(ownerOf), byAgent: index(agentOf), byServer: index(serverOf)}),
		Warnings: core.NewFilteredEventInformer(client, namespace, 0, cache.Indexers{byObject: index(objectOf)}, selectBy(onlyWarnings)),
		Table:    core.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, selectBy(onlyTable)),
		Pinned:   core.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, selectBy(onlyPinned)),
	}
	var errs []error
	trim := newTrimmer().trim
	for _, k := range c.kinds() {
		errs = append(errs, k.informer.SetTransform(trim))
	}
	return c, logging.Errors(errs...)
}

// WatchServices adds the Services of the manager's namespace. It is to be called before Run.
func (c *Caches) WatchServices(client kubernetes.Interface) {
	c.Services = core.NewServiceInformer(client, c.namespace, 0, cache.Indexers{})
	_ = c.Services.SetTransform(newTrimmer().trim) // it does not run yet, so it cannot fail
}

const (
	onlyWarnings = "type=" + corev1.EventTypeWarning
	onlyTable    = metav1.ObjectNameField + "=" + wellknown.TargetsConfigMap
	onlyPinned   = metav1.ObjectNameField + "=" + wellknown.PinnedConfigMap
)

func selectBy(selector string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = selector }
}

// Run runs the informers until the context ends. It returns when they have
// stopped.
func (c *Caches) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, k := range c.kinds() {
		running.Go(func() { k.informer.RunWithContext(ctx) })
	}
	running.Wait()
}

// Await returns when every informer has the whole of its objects.
func (c *Caches) Await(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.HasSynced) {
		return fmt.Errorf("reading the cluster's objects: %w", context.Cause(ctx))
	}
	return nil
}

// HasSynced reports whether every informer has all of its objects.
func (c *Caches) HasSynced() bool {
	return !slices.ContainsFunc(c.kinds(), func(k kind) bool { return !k.informer.HasSynced() })
}

// kind is one kind of objects: what the informer has of it, and how the apiserver lists it.
type kind struct {
	name      string
	informer  cache.SharedIndexInformer
	resource  schema.GroupVersionResource // none where nothing is decided from the objects
	namespace string
	selector  string // of fields
}

// kinds returns all kinds. Warnings are read for messages only.
func (c *Caches) kinds() []kind {
	const cluster = metav1.NamespaceAll
	core, own := corev1.SchemeGroupVersion, c.namespace
	all := []kind{
		{"claims", c.Claims, core.WithResource("persistentvolumeclaims"), cluster, ""},
		{"volumes", c.Volumes, core.WithResource("persistentvolumes"), cluster, ""},
		{"storage classes", c.Classes, storagev1.SchemeGroupVersion.WithResource("storageclasses"), cluster, ""},
		{"nodes", c.Nodes, core.WithResource("nodes"), cluster, ""},
		{"Jobs", c.Jobs, batchv1.SchemeGroupVersion.WithResource("jobs"), own, ""},
		{"pods", c.Pods, core.WithResource("pods"), own, ""},
		{name: "events", informer: c.Warnings},
		{"ConfigMap " + wellknown.TargetsConfigMap, c.Table, core.WithResource("configmaps"), own, onlyTable},
		{"ConfigMap " + wellknown.PinnedConfigMap, c.Pinned, core.WithResource("configmaps"), own, onlyPinned},
	}
	if c.Services != nil {
		all = append(all, kind{"Services", c.Services, core.WithResource("services"), own, ""})
	}
	return all
}
