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

// watch watches two objects, the table and the node, until the context ends.
func (a *Agent) watch(ctx context.Context) error {
	tables := singleObject(a.options.Client, a.options.Namespace, wellknown.TargetsConfigMap)
	nodes := singleObject(a.options.Client, metav1.NamespaceAll, a.options.Node)
	table, node := tables.Core().V1().ConfigMaps().Informer(), nodes.Core().V1().Nodes().Informer()
	if err := node.SetTransform(trimNode); err != nil {
		return fmt.Errorf("watching the node: %w", err)
	}
	logError := a.watchErrorHandler()
	for _, each := range []cache.SharedIndexInformer{table, node} {
		if err := each.SetWatchErrorHandlerWithContext(logError); err != nil {
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
		a.inbox.put(func(n *inputs) { n.deleted = !n.synced; n.synced = true }) // the list may be empty
	}
	<-ctx.Done()
	tables.Shutdown()
	nodes.Shutdown()
	return nil
}

// singleObject makes informers of one object: they need no right to list others.
func singleObject(client kubernetes.Interface, namespace, name string) informers.SharedInformerFactory {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector }))
}

// trimNode drops what may be large and is not used: the node's images and its managed fields.
func trimNode(object any) (any, error) {
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
			a.inbox.put(func(n *inputs) { n.table, n.synced, n.deleted = text, true, false })
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, object any) { put(object) },
		// Only one object is watched.
		DeleteFunc: func(any) { a.inbox.put(func(n *inputs) { n.table, n.synced, n.deleted = "", true, true }) },
	}
}

func (a *Agent) nodeHandler() cache.ResourceEventHandler {
	put := func(object any) {
		if node, ok := object.(*corev1.Node); ok && node.Name == a.options.Node {
			a.inbox.put(func(n *inputs) { n.node = node })
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: put, UpdateFunc: func(_, object any) { put(object) }}
}

// loggedErrorsPerMinute limits the log while the apiserver cannot be reached.
const loggedErrorsPerMinute = 2

// watchErrorHandler counts and logs errors of watches. Reflectors retry by themselves.
func (a *Agent) watchErrorHandler() cache.WatchErrorHandlerWithContext {
	limit := flowcontrol.NewTokenBucketRateLimiter(loggedErrorsPerMinute/60.0, loggedErrorsPerMinute)
	return func(_ context.Context, _ *cache.Reflector, err error) {
		a.metrics.watches.Inc()
		if limit.TryAccept() {
			a.options.Log.Warn("watch of the apiserver failed; tunnels stay as they are", "err", err)
		}
	}
}
