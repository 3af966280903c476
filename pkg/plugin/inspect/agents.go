package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
)

// Causes about nodes. Those of events have the event's reason.
const (
	AgentsMissing Cause = "AgentsMissing"
	AgentMissing  Cause = "AgentMissing"
	AgentNotReady Cause = "AgentNotReady"
	NodeNotReady  Cause = "NodeNotReady"
	NodeMissing   Cause = "NodeMissing"
	StartupTaint  Cause = "StartupTaint"
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
	Cause   Cause    `json:"-"`
	shown   bool     // it has a NodeTunnels
}

// agents are those of all nodes that the DaemonSet selects.
func (f *facts) agents() []Agent {
	if f.Agents == nil || f.lacks("pods") {
		return nil
	}
	byNode := f.agentPods()
	var all []Agent
	for _, node := range f.Nodes {
		pod := byNode[node.Name]
		delete(byNode, node.Name)
		if pod != nil || f.isSelected(node) {
			all = append(all, agentOf(node.Name, node, pod))
		}
	}
	for name, pod := range byNode { // of nodes that cannot be read
		if name != "" {
			all = append(all, agentOf(name, nil, pod))
		}
	}
	slices.SortFunc(all, func(a, b Agent) int { return cmp.Compare(a.Node, b.Node) })
	tunnels := map[string][]Result{}
	for _, r := range f.checkTunnels() {
		tunnels[r.node] = append(tunnels[r.node], r)
	}
	for i := range all {
		all[i].Tunnels, all[i].shown = present(tunnels[all[i].Node]), f.tunnels[all[i].Node] != nil
	}
	return all
}

// agentPods are the agents' pods by node, the ready one during an upgrade.
func (f *facts) agentPods() map[string]*corev1.Pod {
	byNode := map[string]*corev1.Pod{}
	for _, pod := range f.Pods {
		if node := nodeOf(pod); isAgent(pod) && pod.DeletionTimestamp == nil && (byNode[node] == nil || IsReady(pod)) {
			byNode[node] = pod
		}
	}
	return byNode
}

// nodeOf a pod of a DaemonSet is also known before the scheduler has found that the node has room: the
// DaemonSet's controller names it in the pod's affinity.
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	for _, term := range requiredTerms(pod.Spec.Affinity) {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

func requiredTerms(affinity *corev1.Affinity) []corev1.NodeSelectorTerm {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func isAgent(pod *corev1.Pod) bool {
	for key, value := range mountjobs.AgentLabels() {
		if pod.Labels[key] != value {
			return false
		}
	}
	return true
}

// isSelected says whether the DaemonSet creates a pod on a node, as its controller decides. The agents tolerate
// all taints. Of an affinity that cannot be read, the DaemonSet has no pods.
func (f *facts) isSelected(node *corev1.Node) bool {
	spec := f.Agents.Spec.Template.Spec
	matches, err := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity).Match(node)
	return err == nil && matches && node.Labels["eks.amazonaws.com/compute-type"] != "fargate"
}

func agentOf(name string, node *corev1.Node, pod *corev1.Pod) Agent {
	agent := Agent{Node: name}
	if pod != nil {
		agent.Pod, agent.Version, agent.Ready = pod.Name, versionOf(imageOf(pod.Spec)), IsReady(pod)
	}
	switch why := nodeProblem(node); {
	case why != "":
		agent.Ready, agent.Cause, agent.Why = false, NodeNotReady, why
	case pod == nil:
		agent.Cause, agent.Why = AgentMissing, "there is no pod of the DaemonSet"
	case !agent.Ready:
		agent.Cause, agent.Why = AgentNotReady, PodProblem(pod)
	}
	return agent
}

func nodeProblem(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return join("the node is not ready", cmp.Or(condition.Message, condition.Reason))
		}
	}
	return ""
}

func (f *facts) checkAgents() []Result {
	object := "daemonset " + wellknown.NodeDaemonSet
	switch {
	case f.lacks("daemonsets.apps"):
		return nil
	case f.Agents == nil:
		return []Result{problem(AgentsMissing, object, "there is no node agent in namespace "+f.Namespace,
			"install it, or name its namespace with --system-namespace")}
	case f.lacks("pods") && f.Agents.Status.NumberReady < f.Agents.Status.DesiredNumberScheduled:
		return []Result{problem(AgentNotReady, object, fmt.Sprintf("%d of %d agents are ready", f.Agents.Status.NumberReady, f.Agents.Status.DesiredNumberScheduled),
			"kubectl -n "+f.Namespace+" get pods -o wide")}
	}
	var results []Result
	for _, agent := range f.agents() {
		results = append(results, f.checkAgent(agent).ofNode(agent.Node))
	}
	return results
}

func (f *facts) checkAgent(agent Agent) Result {
	object := "node " + agent.Node
	switch agent.Cause {
	case "":
		return fine(object, "agent %s is ready", agent.Pod)
	case NodeNotReady:
		return problem(NodeNotReady, object, agent.Why, "kubectl describe node "+agent.Node)
	case AgentMissing:
		return problem(AgentMissing, object, agent.Why+": no volume can be mounted", fmt.Sprintf("kubectl -n %s describe daemonset %s", f.Namespace, wellknown.NodeDaemonSet))
	}
	return problem(AgentNotReady, object, join("agent "+agent.Pod+" is not ready", agent.Why), fmt.Sprintf("kubectl -n %s describe pod %s", f.Namespace, agent.Pod))
}

// checkTunnels reads what agents say of their nodes.
func (f *facts) checkTunnels() []Result {
	var results []Result
	if f.Undefined {
		results = append(results, note(DefinitionsMissing, "definitions",
			"the cluster does not have those of FileSystem, NodeTunnels and Installation, so it is not known whether tunnels work: apply the manifests of this version"))
	}
	for _, node := range f.Nodes {
		results = append(results, f.checkTunnelsOf(node)...)
		results = append(results, f.movedTunnels(node)...)
		if hasStartupTaint(node) {
			results = append(results, note(StartupTaint, "node "+node.Name, "it has the taint "+wellknown.TaintAgentNotReady+
				": its agent has not removed it yet, so new pods are kept off").ofNode(node.Name))
		}
	}
	return results
}

// movedTunnels has a note for what the agent has done about a mount target's problem, as long as the newest
// event of a kind says so.
func (f *facts) movedTunnels(node *corev1.Node) []Result {
	var results []Result
	seen := map[string]bool{}
	for _, event := range f.eventsOf("Node", node) {
		passed := event.Reason == wellknown.EventTunnelMoved || event.Reason == wellknown.EventTunnelRestarted
		if !isOurs(event) || !passed || seen[event.Reason] {
			continue
		}
		seen[event.Reason] = true
		if event.Type == corev1.EventTypeWarning {
			results = append(results, note(Cause(event.Reason), "node "+node.Name, event.Message).ofNode(node.Name))
		}
	}
	return results
}

// TunnelText says how the tunnels of a node are. Agents report problems only.
func (a Agent) TunnelText() string {
	var causes []string
	for _, r := range a.Tunnels {
		causes = append(causes, string(r.Cause))
	}
	slices.Sort(causes)
	switch {
	case len(causes) > 0:
		return strings.Join(slices.Compact(causes), ",")
	case !a.Ready, !a.shown:
		return "unknown"
	}
	return "ok"
}

// Healthy says whether the agent is ready, and has reported nothing about its tunnels.
func (a Agent) Healthy() bool { return a.Ready && len(a.Tunnels) == 0 }

func hasStartupTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == wellknown.TaintAgentNotReady })
}

// HostNameShared is about nodes that NFS servers take for one client.
const HostNameShared Cause = "HostNameShared"

// HostNames returns a problem for each node that has the host name of another. The server ends opens and locks of the
// one when the other mounts a file system.
func HostNames(nodes []*corev1.Node, hostName func(*corev1.Node) string) []Result {
	byName := map[string][]string{}
	for _, node := range nodes {
		name := hostName(node)
		byName[name] = append(byName[name], node.Name)
	}
	var results []Result
	for _, node := range nodes {
		name := hostName(node)
		if same := byName[name]; name != "" && len(same) > 1 {
			results = append(results, problem(HostNameShared, "node "+node.Name,
				fmt.Sprintf("%s have the host name %s, so a file system takes them for one NFS client: each one's start ends the other's open files and locks", fewOf(same), name),
				"give each node a host name of its own, or another identity by the kernel's parameter nfs.nfs4_unique_id: "+wellknown.DocsURL+"tasks/node-names.md").ofNode(node.Name))
		}
	}
	return results
}

// fewOf lists at most three nodes.
func fewOf(nodes []string) string {
	const most = 3
	if more := len(nodes) - most; more > 0 {
		return fmt.Sprintf("nodes %s and %d more", strings.Join(nodes[:most], ", "), more)
	}
	return "nodes " + strings.Join(nodes, ", ")
}

// checkHostNames knows the names that kubelets have reported as labels.
func (f *facts) checkHostNames() []Result {
	return HostNames(f.Nodes, func(node *corev1.Node) string { return node.Labels[corev1.LabelHostname] })
}
