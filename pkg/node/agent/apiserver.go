package agent

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/objects"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

func (a *Agent) watch(ctx context.Context) error {
	o, logError := a.options, a.watchErrorHandler()
	table, err := a.newTableWatch(logError)
	nodes := informers.NewFilteredNodeInformer(o.Client, 0, nil, only(o.Node))
	setNode := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			a.inbox.put(func(n *inputs) { n.node = node })
		}
	}
	_, nodeErr := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: setNode, UpdateFunc: func(_, object any) { setNode(object) }})
	if err := errors.Join(err, nodeErr, nodes.SetTransform(trimNode), nodes.SetWatchErrorHandlerWithContext(logError)); err != nil {
		return fmt.Errorf("watching the apiserver: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { nodes.RunWithContext(ctx) })
	table.run(ctx)
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
	wake loop.Wake // of the sync

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
	b.wake.Request()
}

func (b *inbox) get() inputs {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inputs
}

// taintInterval is between two checks of the node's taints.
const taintInterval = 500 * time.Millisecond

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

// showInterval is the shortest time between two writes of the node's NodeTunnels, and the longest one
// between two comparisons with what is true.
const showInterval = 10 * time.Second

// rewriteInterval is the time after which the object is written without a change: somebody may have deleted it.
const rewriteInterval = time.Hour

// startTime is how long a starting agent without problems shows nothing until it is ready, so that most
// write once.
const startTime = 30 * time.Second

// missingInterval is the time between two tries to write while the definition is not installed.
const missingInterval = 5 * time.Minute

// showing is what the loop keeps about the node's NodeTunnels.
type showing struct {
	at     time.Time // of the latest comparison
	latest v1alpha1.NodeTunnelsStatus
	wanted time.Time // when that was requested
}

// wanted is what the node's NodeTunnels should be.
type wanted struct {
	node   *corev1.Node // its owner
	status v1alpha1.NodeTunnelsStatus
}

// show requests a write of the node's NodeTunnels if it differs from the latest one. It compares them when
// a condition has changed, and else once in showInterval.
func (a *Agent) show(now time.Time, changed bool) {
	node := a.inbox.get().node
	if a.options.WriteStatus == nil || node == nil || !changed && now.Sub(a.showing.at) < showInterval {
		return
	}
	if starts := a.wanted.Load() == nil && !a.wasReady() && now.Sub(a.started) < startTime; starts && !changed {
		return
	}
	next := a.nodeTunnels(now)
	a.showing.at = now
	w, isOld := a.wanted.Load(), now.Sub(a.showing.wanted) >= rewriteInterval
	if w != nil && !isOld && w.node.UID == node.UID && reflect.DeepEqual(next, a.showing.latest) {
		return
	}
	a.showing.latest, a.showing.wanted = next, now
	a.wanted.Store(&wanted{node, next})
	a.shown.Request()
}

// writeStatus writes what show requests, until the context ends.
func (a *Agent) writeStatus(ctx context.Context) {
	var failed loop.LastError
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.shown:
		}
		w := a.wanted.Load()
		err := a.options.WriteStatus(ctx, w.node, w.status)
		if failed.IsNew(err) && ctx.Err() == nil {
			a.options.Log.Warn("node's tunnels cannot be shown as an object; they serve without", "err", err)
		}
		pause := showInterval
		if apierrors.IsNotFound(err) {
			pause = missingInterval
		}
		if err != nil {
			a.shown.Request()
		}
		if !loop.Pause(ctx, pause) {
			return
		}
	}
}

func (a *Agent) nodeTunnels(now time.Time) v1alpha1.NodeTunnelsStatus {
	holding, problems := []status.Condition{}, map[string][]v1alpha1.Problem{}
	for _, c := range a.held.Conditions() {
		if c.Subject.Kind == status.Tunnel {
			problems[c.Subject.Name] = append(problems[c.Subject.Name], v1alpha1.NewProblem(c))
		} else {
			holding = append(holding, c)
		}
	}
	s := v1alpha1.NodeTunnelsStatus{Version: buildinfo.Read().Version, Total: len(a.tunnels), Failing: len(problems)}
	var all []v1alpha1.Tunnel
	for name, t := range a.tunnels {
		tunnel := v1alpha1.Tunnel{Name: name, Port: t.Port, MountTarget: t.Active.Address.String(), InUse: t.inUse(now), Problems: problems[name]}
		if tunnel.InUse {
			s.InUse++
			tunnel.LatencyMillis = a.latency(t)
			if lanes := a.status.Tunnels[name].Lanes; lanes != nil {
				tunnel.Lanes = lanes.Open
			}
		}
		delete(problems, name)
		all = append(all, tunnel)
	}
	for name, of := range problems { // of targets that cannot be served
		all = append(all, v1alpha1.Tunnel{Name: name, Problems: of})
	}
	s.Tunnels = v1alpha1.NewTunnels(all)
	holding = slices.Concat(holding, a.notReady(), failing(s))
	s.Conditions = v1alpha1.NewConditions(status.Node, holding, a.showing.latest.Conditions, now)
	return s
}

// latency returns the time of the tunnel's probes in milliseconds, rounded up to a power of two. The one shown before
// stays until the time is above it, or a quarter of it or less: a time near a boundary causes no writes.
func (a *Agent) latency(t *tunnelState) int64 {
	limit, shown := int64(0), int64(0)
	if t.took > 0 {
		limit = 1
	}
	for time.Duration(limit)*time.Millisecond < t.took {
		limit *= 2
	}
	for _, before := range a.showing.latest.Tunnels {
		if before.Name == t.Name && before.MountTarget == t.Active.Address.String() {
			shown = before.LatencyMillis
		}
	}
	if limit <= shown && limit*4 > shown {
		return shown
	}
	return limit
}

// smoothing is how many slow probes a tunnel's time follows: one alone hardly changes it.
const smoothing = 64

// addTook includes the time of an answered probe. The fastest counts at once: what others took longer was not the
// network's.
func (t *tunnelState) addTook(r probe.Result) {
	switch {
	case r.Err != nil || r.ServerOnly:
	case t.took == 0 || r.Took < t.took:
		t.took = max(r.Took, 1)
	default:
		t.took += (r.Took - t.took) / smoothing
	}
}

func (a *Agent) notReady() []status.Condition {
	err := a.Ready()
	if err == nil {
		return nil
	}
	return []status.Condition{a.ofNode(status.AgentNotReady, err.Error())}
}

// failing returns one condition of the node for all of its tunnels with problems.
func failing(s v1alpha1.NodeTunnelsStatus) []status.Condition {
	if s.Failing == 0 {
		return nil
	}
	var names []string
	for _, t := range s.Tunnels[:min(s.Failing, len(s.Tunnels))] {
		names = append(names, t.Name)
	}
	first := s.Tunnels[0].Problems[0]
	return []status.Condition{{
		Subject: status.Subject{Kind: status.Node}, Reason: first.Reason, Since: first.Since.Time,
		Message: fmt.Sprintf("%d tunnels have problems: %s", s.Failing, status.FirstFew(names)),
	}}
}
