package mountjobs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// AgentLabels returns the labels that select the node agent's pods. Its DaemonSet in deploy/kustomize must have them.
func AgentLabels() map[string]string {
	return map[string]string{wellknown.LabelProgram: wellknown.ProgramAgent}
}

// affinity places the pod on a node with an agent, because the tunnel is there. While no node takes the pod,
// an autoscaler must add one, and not every autoscaler sees that it will have an agent, too.
func (s Spec) affinity() *corev1.Affinity {
	withAgent := corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchLabels: AgentLabels()},
		TopologyKey:   corev1.LabelHostname,
	}
	affinity := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, NodeAffinity: awayFrom(s.AvoidNodes)}
	if s.NoNode {
		affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: withAgent}}
	} else {
		affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{withAgent}
	}
	return affinity
}

// awayFrom selects nodes by name: the label hostname can be different.
func awayFrom(nodes []string) *corev1.NodeAffinity {
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	nodes = slices.DeleteFunc(nodes, func(node string) bool { return node == "" })
	if len(nodes) == 0 {
		return nil
	}
	var fields []corev1.NodeSelectorRequirement
	for _, node := range nodes { // a field takes one value; all of them must hold
		fields = append(fields, corev1.NodeSelectorRequirement{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node},
		})
	}
	return &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: fields}},
		},
	}
}

// NodesToAvoid returns the nodes where a Job failed, as long as one of the agents is ready on another node,
// else none: with a single node, the next try must run where the last one did. agents must not contain
// those on nodes that take no Job, see Takes.
func NodesToAvoid(failed []string, agents []*corev1.Pod) []string {
	for _, agent := range agents {
		if IsReady(agent) && !slices.Contains(failed, agent.Spec.NodeName) {
			return failed
		}
	}
	return nil
}

// Takes reports whether a node has the labels that a Job's pod selects, and the pod tolerates its taints.
// Agents run on every node. It is false for a node that is not found, nil.
func (s Settings) Takes(node *corev1.Node) bool {
	if node == nil || node.DeletionTimestamp != nil || !labels.SelectorFromSet(s.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable { // the taint comes a moment later
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	return !slices.ContainsFunc(taints, s.isKeptOffBy)
}

func (s Settings) isKeptOffBy(taint corev1.Taint) bool {
	tolerates := func(toleration corev1.Toleration) bool {
		return toleration.ToleratesTaint(klog.Logger{}, &taint, false)
	}
	return taint.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(s.tolerations(), tolerates)
}

// AvoidsNodes reports whether a Job was created with nodes to avoid.
func AvoidsNodes(job *batchv1.Job) bool {
	affinity := job.Spec.Template.Spec.Affinity
	return affinity != nil && affinity.NodeAffinity != nil
}

// FindsNoNode reports whether the scheduler has found no node for a Job's pod.
func FindsNoNode(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "" && hasPodCondition(pod, corev1.PodScheduled, corev1.ConditionFalse)
	})
}

// CannotStart reports whether a Job's pod is on a node and has not started, and its root claim has lost its volume: the
// kubelet does not find the volume any more, and the claim cannot be replaced before the pod is gone.
func CannotStart(root *corev1.PersistentVolumeClaim, pods []*corev1.Pod) bool {
	isLost := root != nil && root.Status.Phase == corev1.ClaimLost
	return isLost && slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && !hasStarted(pod)
	})
}

// HasStarted reports whether a Job's program runs, or has run.
func HasStarted(pods []*corev1.Pod) bool { return slices.ContainsFunc(pods, hasStarted) }

// hasStarted does not look at the phase, which stays Pending while a container that others added does not start.
func hasStarted(pod *corev1.Pod) bool {
	state := ContainerOf(pod).State
	return state.Running != nil || state.Terminated != nil
}

// IsReady reports whether a pod is ready and does not end.
func IsReady(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil &&
		hasPodCondition(pod, corev1.PodReady, corev1.ConditionTrue)
}

func hasPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == kind && condition.Status == status
	})
}

// nodeSelector keeps Jobs off nodes with Windows, which have no agent, where the affinity does not.
func (s Spec) nodeSelector() map[string]string {
	if !s.NoNode {
		return s.NodeSelector
	}
	selector := map[string]string{corev1.LabelOSStable: "linux"}
	maps.Copy(selector, s.NodeSelector)
	return selector
}

// lostNodeSeconds keep a pod on a node that is not ready or unreachable. Claims would wait Kubernetes' default of 300.
const lostNodeSeconds = 30

// tolerations let a Job run on control planes and in pools for system pods, the only ones in small clusters. Unlike the
// agent, it does not start on a node that is cordoned, short of memory or not ready.
func (s Settings) tolerations() []corev1.Toleration {
	soon := int64(lostNodeSeconds)
	return append([]corev1.Toleration{
		{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/master", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon},
	}, s.Tolerations...)
}

// ParseTolerations reads a list of taints as kubectl taint writes them: key=value:effect, with commas between.
// Without a value every value is tolerated, and without an effect every effect.
func ParseTolerations(list string) ([]corev1.Toleration, error) {
	var all []corev1.Toleration
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		toleration, err := parseToleration(item)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", item, err)
		}
		all = append(all, toleration)
	}
	return all, nil
}

func parseToleration(item string) (corev1.Toleration, error) {
	taint, effect, hasEffect := strings.Cut(item, ":")
	key, value, hasValue := strings.Cut(taint, "=")
	toleration := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Value: value, Effect: corev1.TaintEffect(effect)}
	if hasValue {
		toleration.Operator = corev1.TolerationOpEqual
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if hasEffect && !slices.Contains(effects, toleration.Effect) {
		return toleration, fmt.Errorf("want an effect of %q, or none for all", effects)
	}
	if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
		return toleration, errors.New("want a taint such as dedicated=storage:NoSchedule")
	}
	return toleration, nil
}

// ParseNodeSelector reads key=value,…: labels that a node must have.
func ParseNodeSelector(list string) (map[string]string, error) {
	selector, err := labels.ConvertSelectorToLabelsMap(list)
	if err != nil || len(metav1validation.ValidateLabels(selector, nil)) > 0 {
		return nil, errors.New("want labels such as pool=storage, with commas between")
	}
	return selector, nil
}
