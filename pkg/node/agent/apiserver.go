package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
)

// watch watches two objects, the table and the node, until the context ends.
func (a *Agent) watch(ctx context.Context) error {
	o, logError := a.options, a.watchErrorHandler()
	tables := informers.NewFilteredConfigMapInformer(o.Client, o.Namespace, 0, nil, only(wellknown.TargetsConfigMap))
	nodes := informers.NewFilteredNodeInformer(o.Client, 0, nil, only(o.Node))
	listed, err := tables.AddEventHandler(a.tableHandler())
	_, nodeErr := nodes.AddEventHandler(onObject(func(node *corev1.Node) {
		a.inbox.put(func(n *inputs) { n.node = node })
	}))
	if err := errors.Join(err, nodeErr, nodes.SetTransform(trimNode),
		tables.SetWatchErrorHandlerWithContext(logError), nodes.SetWatchErrorHandlerWithContext(logError)); err != nil {
		return fmt.Errorf("watching the apiserver: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { tables.RunWithContext(ctx) })
	running.Go(func() { nodes.RunWithContext(ctx) })
	if cache.WaitForCacheSync(ctx.Done(), listed.HasSynced) {
		a.inbox.put(func(n *inputs) { n.deleted = !n.synced; n.synced = true }) // the list may be empty
	}
	running.Wait()
	return nil
}

// only selects one object: the agent has no right to list others.
func only(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// trimNode drops what may be large and is not used.
func trimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		node.ManagedFields, node.Annotations, node.Status = nil, nil, corev1.NodeStatus{}
	}
	return object, nil
}

func (a *Agent) tableHandler() cache.ResourceEventHandler {
	handler := onObject(func(cm *corev1.ConfigMap) {
		text := cm.Data[wellknown.TargetsKey]
		a.inbox.put(func(n *inputs) { n.table, n.synced, n.deleted = text, true, false })
	})
	handler.DeleteFunc = func(any) { a.inbox.put(func(n *inputs) { n.table, n.synced, n.deleted = "", true, true }) }
	return handler
}

// onObject calls put with the object when it is there at first, and when it changes.
func onObject[T any](put func(T)) cache.ResourceEventHandlerFuncs {
	handle := func(object any) {
		if typed, ok := object.(T); ok {
			put(typed)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }}
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

// inbox has the latest state of all watched objects. Changes that come together cause one sync.
type inbox struct {
	wake chan struct{} // holds at most one request to sync

	mu     sync.Mutex
	inputs inputs // guarded by mu
}

type inputs struct {
	table   string // of the ConfigMap; "" when it has none
	synced  bool   // the ConfigMap was listed, whether or not there is one
	deleted bool   // there is no ConfigMap

	node *corev1.Node // nil until known
	// metadata is from the instance metadata service; metadataTried says that it was requested.
	metadata      routing.Location
	metadataTried bool
}

func (b *inbox) put(change func(*inputs)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.inputs)
	select {
	case b.wake <- struct{}{}:
	default: // a sync is requested already
	}
}

func (b *inbox) get() inputs {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inputs
}

// taintInterval is between two checks of the node's taints.
const taintInterval = 500 * time.Millisecond

// withoutStartupTaint returns the taints that are not ours.
func withoutStartupTaint(taints []corev1.Taint) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(taints), func(t corev1.Taint) bool { return t.Key == wellknown.TaintAgentNotReady })
}

// removeTaint removes the startup taint whenever the agent is ready and the node has it.
func (a *Agent) removeTaint(ctx context.Context) {
	tried, pause := time.Time{}, taintInterval
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		node := a.inbox.get().node
		if node == nil || a.Ready() != nil || time.Since(tried) < pause {
			return
		}
		others := withoutStartupTaint(node.Spec.Taints)
		if len(others) == len(node.Spec.Taints) {
			return
		}
		tried, pause = time.Now(), min(2*pause, time.Minute)
		// The version keeps a taint that was added meanwhile.
		err := objects.Patch(ctx, a.options.Client, node, map[string]any{
			"metadata": map[string]any{"resourceVersion": node.ResourceVersion}, "spec": map[string]any{"taints": others},
		})
		if err != nil {
			a.options.Log.Warn("startup taint cannot be removed", "node", a.options.Node, "requeueAfter", pause, "err", err)
			return
		}
		pause = taintInterval
		a.options.Log.Info("startup taint removed", "node", a.options.Node)
	}, taintInterval)
}
