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

// schedule binds the pod to a node. While no node takes it, the pod has the condition and event that say why.
func (p *pod) schedule() error {
	reported := ""
	err := p.poll(p.exists, func() (bool, error) {
		node, why, err := p.chooseNode()
		if err != nil {
			return false, err
		}
		if why == "" {
			p.node = node
			return true, nil
		}
		if why != reported {
			reported, err = why, p.reportUnschedulable(why)
		}
		return false, err
	})
	if err != nil {
		return err
	}
	return p.options.Client.CoreV1().Pods(p.options.Namespace).Bind(p.exists, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.object.Name, Namespace: p.options.Namespace, UID: p.object.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: p.node},
	}, metav1.CreateOptions{})
}

func (p *pod) reportUnschedulable(why string) error {
	err := p.patchStatus(corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: why, LastTransitionTime: metav1.Now(),
	}}})
	if err != nil {
		return err
	}
	return p.event(corev1.EventTypeWarning, "FailedScheduling", why)
}

// chooseNode returns the first node that the pod may run on, or the scheduler's message why there is
// none.
func (p *pod) chooseNode() (node, why string, err error) {
	nodes, err := p.options.Client.CoreV1().Nodes().List(p.exists, metav1.ListOptions{})
	if err != nil {
		return "", "", err
	}
	if why, err := p.claimProblem(); why != "" || err != nil {
		return "", noNode(len(nodes.Items), why), err
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	refusals := map[string]int{}
	for _, node := range nodes.Items {
		refusal, err := p.refusal(&node)
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

// noNode returns the scheduler's message around its reasons.
func noNode(nodes int, reasons string) string {
	if nodes == 0 {
		return "no nodes available to schedule pods"
	}
	return fmt.Sprintf("0/%[1]d nodes are available: %[2]s. preemption: 0/%[1]d nodes are available: %[1]d Preemption is not helpful for scheduling.", nodes, reasons)
}

// refusal returns why a node does not take the pod, or "".
func (p *pod) refusal(node *corev1.Node) (string, error) {
	if node.Spec.Unschedulable {
		return "were unschedulable", nil
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(p.object).Match(node)
	if err != nil || !matches {
		return "didn't match Pod's node affinity/selector", err
	}
	fits, err := p.matchesPodAffinity(node)
	if err != nil || !fits {
		return "didn't match pod affinity rules", err
	}
	return "", nil
}

// matchesPodAffinity supports the topology of hostnames, which mount Jobs use.
func (p *pod) matchesPodAffinity(node *corev1.Node) (bool, error) {
	if p.object.Spec.Affinity == nil || p.object.Spec.Affinity.PodAffinity == nil {
		return true, nil
	}
	for _, term := range p.object.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		if term.TopologyKey != corev1.LabelHostname {
			return false, fmt.Errorf("the topology %q is not simulated", term.TopologyKey)
		}
		pods, err := p.options.Client.CoreV1().Pods(p.options.Namespace).List(p.exists, metav1.ListOptions{
			LabelSelector: metav1.FormatLabelSelector(term.LabelSelector),
			FieldSelector: "spec.nodeName=" + node.Name,
		})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
	}
	return true, nil
}

// claimProblem returns the scheduler's message about the pod's claims, "" when they are bound.
func (p *pod) claimProblem() (string, error) {
	for _, volume := range p.object.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		name := volume.PersistentVolumeClaim.ClaimName
		claim, err := p.options.Client.CoreV1().PersistentVolumeClaims(p.options.Namespace).Get(p.exists, name, metav1.GetOptions{})
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
