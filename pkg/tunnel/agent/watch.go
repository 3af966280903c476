package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// watch follows two objects, the table and the node, until the context ends.
func (a *Agent) watch(ctx context.Context) error {
	tables := one(a.options.Client, a.options.Namespace, wellknown.TargetsConfigMap)
	nodes := one(a.options.Client, metav1.NamespaceAll, a.options.Node)
	table, node := tables.Core().V1().ConfigMaps().Informer(), nodes.Core().V1().Nodes().Informer()
	if err := node.SetTransform(essence); err != nil {
		return fmt.Errorf("watching the node: %w", err)
	}
	complain := a.complainer()
	for _, each := range []cache.SharedIndexInformer{table, node} {
		if err := each.SetWatchErrorHandlerWithContext(complain); err != nil {
			return fmt.Errorf("watching the apiserver: %w", err)
		}
	}
	tableHandler, err := table.AddEventHandler(a.tableHandler())
	if err != nil {
		return fmt.Errorf("watching the table: %w", err)
	}
	if _, err := node.AddEventHandler(a.nodeHandler()); err != nil {
		return fmt.Errorf("watching the node: %w", err)
	}
	tables.StartWithContext(ctx)
	nodes.StartWithContext(ctx)
	if cache.WaitForCacheSync(ctx.Done(), tableHandler.HasSynced) {
		a.inbox.put(func(n *news) { n.deleted = !n.heard; n.heard = true }) // there may be none
	}
	<-ctx.Done()
	tables.Shutdown()
	nodes.Shutdown()
	return nil
}

// one makes informers of a single object: no right to see others is needed.
func one(client kubernetes.Interface, namespace, name string) informers.SharedInformerFactory {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
}

// essence leaves out what may be large and is not read: the images on the node, and the history
// of fields.
func essence(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
		},
		Spec: corev1.NodeSpec{Taints: node.Spec.Taints},
	}, nil
}

func (a *Agent) tableHandler() cache.ResourceEventHandler {
	put := func(object any) {
		if cm, ok := object.(*corev1.ConfigMap); ok && cm.Name == wellknown.TargetsConfigMap {
			text := cm.Data[wellknown.TargetsKey]
			a.inbox.put(func(n *news) { n.text, n.heard, n.deleted = text, true, false })
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, object any) { put(object) },
		// Whatever was deleted, there was one object.
		DeleteFunc: func(any) { a.inbox.put(func(n *news) { n.text, n.heard, n.deleted = "", true, true }) },
	}
}

func (a *Agent) nodeHandler() cache.ResourceEventHandler {
	put := func(object any) {
		if node, ok := object.(*corev1.Node); ok && node.Name == a.options.Node {
			a.inbox.put(func(n *news) { n.node = node })
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: put, UpdateFunc: func(_, object any) { put(object) }}
}

// complaintsPerMinute keeps the log readable while the apiserver is away.
const complaintsPerMinute = 2

// complainer logs why the apiserver cannot be watched. Reflectors go on by themselves.
func (a *Agent) complainer() cache.WatchErrorHandlerWithContext {
	limit := flowcontrol.NewTokenBucketRateLimiter(complaintsPerMinute/60.0, complaintsPerMinute)
	return func(_ context.Context, _ *cache.Reflector, err error) {
		a.metrics.watches.Inc()
		if limit.TryAccept() {
			a.options.Log.Warn("apiserver cannot be watched for the moment; tunnels stay as they are", "err", err)
		}
	}
}
