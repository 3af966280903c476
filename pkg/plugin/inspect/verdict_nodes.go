package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
)

// Causes about nodes. Those of conditions have the condition's reason, and those of events the event's.
const (
	AgentsMissing      Cause = "AgentsMissing"
	AgentMissing       Cause = "AgentMissing"
	AgentNotReady      Cause = "AgentNotReady"
	NodeNotReady       Cause = "NodeNotReady"
	NodeMissing        Cause = "NodeMissing"
	StartupTaint       Cause = "StartupTaint"
	HostNameShared     Cause = "HostNameShared"     // NFS servers take several nodes for one client
	DefinitionsMissing Cause = "DefinitionsMissing" // of objects with conditions
)

// Agent is the node agent of one node.
type Agent struct {
	Node    string `json:"node"`
	Pod     string `json:"pod,omitempty"`
	Version string `json:"version,omitempty"`
	Ready   bool   `json:"ready"`
	Why     string `json:"why,omitempty"` // it is not ready
	// Tunnels are what it has reported about tunnels that are not as they should be, or were not.
	Tunnels []Result `json:"tunnels"`
	verdict Result
	shown   bool // it has a NodeTunnels
}

// agents returns those of all nodes that the DaemonSet selects, and of nodes that cannot be read.
func (f *facts) agents() []Agent {
	if f.Agents == nil || f.lacks("pods") {
		return nil
	}
	pods, tunnels := f.agentPods(), map[string][]Result{}
	for _, r := range f.checkTunnels() {
		tunnels[r.Object] = append(tunnels[r.Object], r)
	}
	nodes := reading.Index(f.Nodes, (*corev1.Node).GetName)
	var all []Agent
	for _, name := range sets.List(sets.KeySet(nodes).Union(sets.KeySet(pods))) {
		if pods[name] != nil || f.isSelected(nodes[name]) {
			agent := f.agentOf(name, nodes[name], pods[name])
			agent.Tunnels, agent.shown = present(tunnels[named(KindNode, name)]), f.tunnels[name] != nil
			all = append(all, agent)
		}
	}
	return all
}

// agentPods returns the agents' pods by node, the ready one during an upgrade.
func (f *facts) agentPods() map[string]*corev1.Pod {
	byNode := map[string]*corev1.Pod{}
	for _, pod := range f.Pods {
		if node := nodeOf(pod); isAgent(pod) && pod.DeletionTimestamp == nil && (byNode[node] == nil || mountjobs.IsReady(pod)) {
			byNode[node] = pod
		}
	}
	delete(byNode, "")
	return byNode
}

// nodeOf a pod of a DaemonSet is also known before the scheduler has found that the node has room: the
// DaemonSet's controller names it in the pod's affinity.
func nodeOf(pod *corev1.Pod) string {
	affinity := pod.Spec.Affinity
	if pod.Spec.NodeName != "" || affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return pod.Spec.NodeName
	}
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func isAgent(pod *corev1.Pod) bool {
	return labels.SelectorFromSet(mountjobs.AgentLabels()).Matches(labels.Set(pod.Labels))
}

// isSelected reports whether the DaemonSet creates a pod on a node, as its controller decides. The agents tolerate
// all taints. Of an affinity that cannot be read, the DaemonSet has no pods.
func (f *facts) isSelected(node *corev1.Node) bool {
	spec := f.Agents.Spec.Template.Spec
	matches, err := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity).Match(node)
	return err == nil && matches && node.Labels["eks.amazonaws.com/compute-type"] != "fargate"
}

func (f *facts) agentOf(name string, node *corev1.Node, pod *corev1.Pod) Agent {
	agent, object := Agent{Node: name}, named(KindNode, name)
	if pod != nil {
		agent.Pod, agent.Version, agent.Ready = pod.Name, versionOf(imageOf(pod.Spec)), mountjobs.IsReady(pod)
	}
	switch why := nodeProblem(node); {
	case why != "":
		agent.Ready, agent.Why = false, why
		agent.verdict = problem(NodeNotReady, object, why)
	case pod == nil:
		agent.Why = "there is no pod of the DaemonSet"
		agent.verdict = problem(AgentMissing, object, agent.Why+": no volume can be mounted")
	case !agent.Ready:
		agent.Why = PodProblem(pod)
		agent.verdict = problem(AgentNotReady, object, join("agent "+pod.Name+" is not ready", agent.Why))
		agent.verdict.Remedy = "kubectl -n " + f.Namespace + " describe pod " + pod.Name
	default:
		agent.verdict = Fine(object, "agent %s is ready%s", pod.Name, f.lanesOf(name))
	}
	return agent
}

// lanesOf the tunnels of a node that have some.
func (f *facts) lanesOf(node string) (text string) {
	if object := f.tunnels[node]; object != nil {
		for _, tunnel := range object.Status.Tunnels {
			if tunnel.Lanes > 0 {
				text += fmt.Sprintf("; %d lanes to %s on port %d", tunnel.Lanes, tunnel.Name, tunnel.Port)
			}
		}
	}
	return text
}

func nodeProblem(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	failed := first(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
	if failed.Type == "" {
		return ""
	}
	return join("the node is not ready", cmp.Or(failed.Message, failed.Reason))
}

func (f *facts) checkAgents() (results []Result) {
	object := named("daemonset", wellknown.NodeDaemonSet)
	switch {
	case f.lacks("daemonsets.apps"):
		return nil
	case f.Agents == nil:
		return []Result{problem(AgentsMissing, object, "there is no node agent in namespace "+f.Namespace)}
	case f.lacks("pods") && f.Agents.Status.NumberReady < f.Agents.Status.DesiredNumberScheduled:
		return []Result{problem(AgentNotReady, object, fmt.Sprintf("%d of %d agents are ready", f.Agents.Status.NumberReady, f.Agents.Status.DesiredNumberScheduled))}
	}
	for _, agent := range f.agents() {
		results = append(results, agent.verdict)
	}
	return results
}

// checkTunnels repeats what agents say of their nodes.
func (f *facts) checkTunnels() (results []Result) {
	if f.Undefined {
		results = append(results, note(DefinitionsMissing, "definitions",
			"the cluster does not have those of FileSystem, NodeTunnels and Installation, so it is not known whether tunnels work: apply the manifests of this version"))
	}
	for _, node := range f.Nodes {
		results = append(append(results, f.checkTunnelsOf(node)...), f.movedTunnels(node)...)
		if slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == wellknown.TaintAgentNotReady }) {
			results = append(results, note(StartupTaint, named(KindNode, node.Name),
				"it has the taint "+wellknown.TaintAgentNotReady+": its agent has not removed it yet, so new pods are kept off"))
		}
	}
	return results
}

// checkTunnelsOf reads the NodeTunnels of a node that has an agent, or should have one.
func (f *facts) checkTunnelsOf(node *corev1.Node) (results []Result) {
	object, name := f.tunnels[node.Name], named(KindNode, node.Name)
	if object == nil || f.Agents != nil && !f.isSelected(node) {
		return nil
	}
	for _, tunnel := range object.Status.Tunnels {
		for _, p := range tunnel.Problems {
			result := f.lasting(problem(Cause(p.Reason), name, p.Message), p.Since.Time)
			if p.Cause != nil {
				result.Remedy, result.from = tunnelspec.ProbeRemedy(p.Cause.Reason), strings.Join([]string{p.Cause.Kind, p.Cause.Name, p.Cause.Reason}, " ")
			}
			results = append(results, result)
		}
	}
	rest := keep(object.Status.Conditions, func(c metav1.Condition) bool {
		// The agent's pod shows the first, and the tunnels themselves the second.
		return c.Type != status.Ready && c.Type != status.TunnelsServe
	})
	return append(results, f.ofConditions(name, rest)...)
}

// movedTunnels notes what the agent has done about a mount target, as long as the newest event of a kind says so.
func (f *facts) movedTunnels(node *corev1.Node) (results []Result) {
	for _, reason := range []string{wellknown.EventTunnelMoved, wellknown.EventTunnelRestarted} {
		newest := first(f.events[eventKey{"Node", "", node.Name}], func(e corev1.Event) bool { return IsOurs(e) && e.Reason == reason })
		if newest.Type == corev1.EventTypeWarning {
			results = append(results, note(Cause(reason), named(KindNode, node.Name), newest.Message))
		}
	}
	return results
}

// TunnelText returns how the tunnels of a node are. Agents report problems only.
func (a Agent) TunnelText() string {
	causes := map[string]bool{}
	for _, r := range a.Tunnels {
		causes[string(r.Cause)] = true
	}
	switch {
	case len(causes) > 0:
		return strings.Join(slices.Sorted(maps.Keys(causes)), ",")
	case !a.Ready, !a.shown:
		return "unknown"
	}
	return "ok"
}

// Healthy reports whether the agent is ready, and has reported nothing about its tunnels.
func (a Agent) Healthy() bool { return a.Ready && len(a.Tunnels) == 0 }

// HostNames returns a problem for each node that has the host name of another. The server ends opens and locks of the
// one when the other mounts a file system.
func HostNames(nodes []*corev1.Node, hostName func(*corev1.Node) string) (results []Result) {
	byName := map[string][]string{}
	for _, node := range nodes {
		byName[hostName(node)] = append(byName[hostName(node)], node.Name)
	}
	for _, node := range nodes {
		name := hostName(node)
		if same := byName[name]; name != "" && len(same) > 1 {
			result := problem(HostNameShared, named(KindNode, node.Name), fmt.Sprintf("nodes %s have the host name %s, so a file system takes them for one NFS client: "+
				"each one's start ends the other's open files and locks", status.FirstFew(same), name))
			result.Remedy = remedies[HostNameShared]
			results = append(results, result)
		}
	}
	return results
}

// checkHostNames knows the names that kubelets have reported as labels.
func (f *facts) checkHostNames() []Result {
	return HostNames(f.Nodes, func(node *corev1.Node) string { return node.Labels[corev1.LabelHostname] })
}
