package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
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
		all[i].Tunnels = present(tunnels[all[i].Node])
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

// nodeRemedies are for the events of agents that are repeated while their cause lasts.
var nodeRemedies = map[string]string{
	wellknown.EventTunnelUnhealthy:         "check the mount target: security group (TCP 2049), routes, its state in AWS", // of agents without AnnotationProbe
	wellknown.EventPortTaken:               "stop the process that has the port (on the node: ss -tnlp)",
	wellknown.EventPortHijacked:            tunnelspec.ProbeRemedy(tunnelspec.ProbeHijacked),
	wellknown.EventPortInEphemeralRange:    "reserve the ports on the node: net.ipv4.ip_local_reserved_ports",
	wellknown.EventTargetUnusable:          "correct the target in the table, or what the message names",
	wellknown.EventConfigurationRefused:    "mount EFS_CA_FILE into both containers",
	wellknown.EventClientCertificateFailed: "what the message says: usually the credentials of the agents",
	wellknown.EventTableMissing:            "none while a manager leads: it rebuilds the table",
	wellknown.EventTableUnreadable:         "correct the ConfigMap that the message names",
}

// checkTunnels reads what agents have reported on their nodes.
func (f *facts) checkTunnels() []Result {
	var results []Result
	pods := f.agentPods()
	for _, node := range f.Nodes {
		results = append(results, f.checkTunnelsOf(node, pods[node.Name])...)
		if hasStartupTaint(node) {
			results = append(results, note(StartupTaint, "node "+node.Name, "it has the taint "+wellknown.TaintAgentNotReady+
				": its agent has not removed it yet, so new pods are kept off").ofNode(node.Name))
		}
	}
	return results
}

// checkTunnelsOf takes the newest event of each problem and tunnel: f.events has the newest first.
func (f *facts) checkTunnelsOf(node *corev1.Node, agent *corev1.Pod) []Result {
	var results []Result
	object, seen := "node "+node.Name, map[topic]bool{}
	for _, event := range f.eventsOf("Node", node) {
		about := topicOf(event)
		if !isOurs(event) || f.isTableMended(event) || f.isRemoved(about.tunnel) || f.isOfEarlierAgent(event, agent) {
			continue
		}
		remedy, ok := nodeRemedies[event.Reason]
		switch {
		case seen[about]:
		case isPassed(event):
			results = append(results, note(Cause(event.Reason), object, event.Message).ofNode(node.Name))
		case ok && f.Now.Sub(LastSeen(event)) < repeated:
			results = append(results, problem(Cause(event.Reason), object,
				fmt.Sprintf("%s (reported %s ago)", event.Message, age(f.Now, LastSeen(event))),
				cmp.Or(tunnelspec.ProbeRemedy(event.Annotations[wellknown.AnnotationProbe]), remedy)).ofNode(node.Name))
		}
		seen[about] = true
	}
	return results
}

// topic is a problem of a node, or of one of its tunnels.
type topic struct{ reason, tunnel string }

// topicOf an event that says that a problem has ended is the problem.
func topicOf(event corev1.Event) topic {
	about := topic{event.Reason, event.Annotations[wellknown.AnnotationTunnel]}
	switch event.Reason {
	case wellknown.EventTunnelHealthy:
		about.reason = wellknown.EventTunnelUnhealthy
	case wellknown.EventProblemEnded:
		about.reason = event.Annotations[wellknown.AnnotationProblem]
	}
	return about
}

// isOfEarlierAgent is true for an event that the agent of the node would have written again, had it found
// the problem: a new agent says nothing about what has ended.
func (f *facts) isOfEarlierAgent(event corev1.Event, agent *corev1.Pod) bool {
	if agent == nil || !IsReady(agent) {
		return false
	}
	for _, status := range agent.Status.ContainerStatuses {
		if running := status.State.Running; status.Name == wellknown.AgentContainer && running != nil {
			began := running.StartedAt.Time
			return LastSeen(event).Before(began) && f.Now.Sub(began) > firstReport
		}
	}
	return false
}

// firstReport is longer than an agent needs to find what is wrong with its node.
const firstReport = 2 * time.Minute

// isRemoved is true for a tunnel that the table does not have any more: nothing reports that it is well.
func (f *facts) isRemoved(tunnel string) bool {
	if tunnel == "" || f.Table == nil || f.tableErr != nil {
		return false
	}
	id, accessPoint, _ := strings.Cut(tunnel, ".")
	target, listed := f.table.Targets[id]
	if accessPoint != "" && listed {
		_, listed = target.AccessPoints[accessPoint]
	}
	return !listed
}

// isPassed is true for an event about a mount target's problem that the agent has dealt with.
func isPassed(event corev1.Event) bool {
	return event.Type == corev1.EventTypeWarning &&
		(event.Reason == wellknown.EventTunnelMoved || event.Reason == wellknown.EventTunnelRestarted)
}

// isTableMended is true for an event about the table if the table has nothing of the kind any more: agents
// report that it is broken, and not that it is mended.
func (f *facts) isTableMended(event corev1.Event) bool {
	switch event.Reason {
	case wellknown.EventTableMissing:
		return f.Table != nil
	case wellknown.EventTableUnreadable:
		return f.Table != nil && f.tableErr == nil && len(f.invalid) == 0
	}
	return false
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
	case !a.Ready:
		return "unknown"
	}
	return "ok"
}

// Healthy says whether the agent is ready, and has reported nothing about its tunnels.
func (a Agent) Healthy() bool { return a.Ready && len(a.Tunnels) == 0 }

func hasStartupTaint(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == wellknown.TaintAgentNotReady })
}
