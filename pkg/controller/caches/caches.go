// Package caches keeps what the control loops observe of the cluster: one
// informer for each kind of object, trimmed to what the loops read, and the
// indexes by which they look things up. Standbys keep it warm.
package caches

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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

	client    kubernetes.Interface
	namespace string
	factories []informers.SharedInformerFactory
}

// New makes the informers; none runs yet, so handlers can be added.
func New(client kubernetes.Interface, namespace string) (*Caches, error) {
	cluster := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), informers.WithTransform(trim))
	warnings := selected(client, namespace, "type", corev1.EventTypeWarning)
	table := selected(client, namespace, metav1.ObjectNameField, wellknown.TargetsConfigMap)
	pinned := selected(client, namespace, metav1.ObjectNameField, wellknown.PinnedConfigMap)
	c := &Caches{
		client:    client,
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

func selected(client kubernetes.Interface, namespace, field, value string) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(namespace), informers.WithTransform(trim),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, value).String()
		}))
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
	for _, i := range c.all() {
		if !i.HasSynced() {
			return false
		}
	}
	return true
}

func (c *Caches) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{c.Claims, c.Volumes, c.Classes, c.Nodes, c.Jobs, c.Pods, c.Warnings, c.Table, c.Pinned}
}

// trim drops what no loop reads; with ten thousand volumes, most of the memory.
func trim(object any) (any, error) {
	accessor, ok := object.(metav1.ObjectMetaAccessor)
	if !ok {
		return object, nil
	}
	accessor.GetObjectMeta().SetManagedFields(nil)
	switch o := object.(type) {
	case *corev1.Node:
		o.Status, o.Annotations = corev1.NodeStatus{}, nil
	case *corev1.Pod:
		trimPod(o)
	case *batchv1.Job:
		trimJob(o)
	}
	return object, nil
}

// trimJob also drops the operations of what is done and used: a busy hour leaves hundreds of
// such Jobs, with up to 64 KiB of them each.
func trimJob(job *batchv1.Job) {
	trimPodSpec(&job.Spec.Template.Spec)
	if job.Status.Succeeded > 0 && !slices.Contains(job.Finalizers, wellknown.FinalizerOutcome) {
		delete(job.Annotations, wellknown.AnnotationOperations)
		delete(job.Spec.Template.Annotations, wellknown.AnnotationOperations)
	}
}

// trimPod leaves what Jobs' pods and node agents are looked at for.
func trimPod(pod *corev1.Pod) {
	trimPodSpec(&pod.Spec)
	pod.Annotations = nil
}

func trimPodSpec(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		c.Env, c.VolumeMounts, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.SecurityContext = nil, nil, nil, nil, nil, nil
	}
	spec.InitContainers, spec.Tolerations = nil, nil
}
