package kubelet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// schedule gives the pod to a node, and says on the pod why none takes it as long as none does.
func (l *life) schedule() error {
	told := ""
	err := l.poll(l.exists, func() (bool, error) {
		node, why, err := l.chooseNode()
		if err != nil {
			return false, err
		}
		if why == "" {
			l.node = node
			return true, nil
		}
		if why != told {
			told, err = why, l.tellUnschedulable(why)
		}
		return false, err
	})
	if err != nil {
		return err
	}
	return l.options.Client.CoreV1().Pods(l.options.Namespace).Bind(l.exists, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: l.pod.Name, Namespace: l.options.Namespace, UID: l.pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: l.node},
	}, metav1.CreateOptions{})
}

func (l *life) tellUnschedulable(why string) error {
	err := l.patchStatus(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: why, LastTransitionTime: metav1.Now(),
	}}})
	if err != nil {
		return err
	}
	return l.event(corev1.EventTypeWarning, "FailedScheduling", why)
}

// chooseNode is the first node that the pod may run on, or the scheduler's words why there is
// none.
func (l *life) chooseNode() (node, why string, err error) {
	if l.troubled(l.fate.Unschedulable) {
		return "", l.fate.Unschedulable, nil
	}
	nodes, err := l.options.Client.CoreV1().Nodes().List(l.exists, metav1.ListOptions{})
	if err != nil {
		return "", "", err
	}
	if why, err := l.claimTrouble(); why != "" || err != nil {
		return "", noNode(len(nodes.Items), why), err
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	refusals := map[string]int{}
	for _, node := range nodes.Items {
		refusal, err := l.refusal(&node)
		if err != nil {
			return "", "", err
		}
		if refusal == "" {
			return node.Name, "", nil
		}
		refusals[refusal]++
	}
	var reasons []string
	for _, refusal := range slices.Sorted(maps.Keys(refusals)) {
		reasons = append(reasons, fmt.Sprintf("%d node(s) %s", refusals[refusal], refusal))
	}
	return "", noNode(len(nodes.Items), strings.Join(reasons, ", ")), nil
}

// noNode is the scheduler's frame around its reasons.
func noNode(nodes int, reasons string) string {
	if nodes == 0 {
		return "no nodes available to schedule pods"
	}
	return fmt.Sprintf("0/%[1]d nodes are available: %[2]s. preemption: 0/%[1]d nodes are available: %[1]d Preemption is not helpful for scheduling.", nodes, reasons)
}

// refusal says why a node does not take the pod, or "".
func (l *life) refusal(node *corev1.Node) (string, error) {
	if node.Spec.Unschedulable {
		return "were unschedulable", nil
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(l.pod).Match(node)
	if err != nil || !matches {
		return "didn't match Pod's node affinity/selector", err
	}
	beside, err := l.isBesideItsPods(node)
	if err != nil || !beside {
		return "didn't match pod affinity rules", err
	}
	return "", nil
}

// isBesideItsPods looks for the pods that the pod must run beside. Their node is their
// topology, which is the only one that mount Jobs name.
func (l *life) isBesideItsPods(node *corev1.Node) (bool, error) {
	if l.pod.Spec.Affinity == nil || l.pod.Spec.Affinity.PodAffinity == nil {
		return true, nil
	}
	for _, term := range l.pod.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return false, fmt.Errorf("the topology %q is not played", term.TopologyKey)
		}
		pods, err := l.options.Client.CoreV1().Pods(l.options.Namespace).List(l.exists, metav1.ListOptions{
			LabelSelector: metav1.FormatLabelSelector(term.LabelSelector),
			FieldSelector: "spec.nodeName=" + node.Name,
		})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
	}
	return true, nil
}

// claimTrouble are the scheduler's words about the pod's claims, "" when they are bound.
func (l *life) claimTrouble() (string, error) {
	for _, volume := range l.pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		claim, err := l.options.Client.CoreV1().PersistentVolumeClaims(l.options.Namespace).Get(l.exists, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("persistentvolumeclaim %q not found", name), nil
		case err != nil:
			return "", err
		case claim.DeletionTimestamp != nil:
			return fmt.Sprintf("persistentvolumeclaim %q is being deleted", name), nil
		case claim.Status.Phase == corev1.ClaimLost:
			return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName), nil
		case claim.Status.Phase != corev1.ClaimBound:
			return "pod has unbound immediate PersistentVolumeClaims", nil
		}
	}
	return "", nil
}
