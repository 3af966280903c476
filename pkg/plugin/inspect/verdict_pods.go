package inspect

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/plugin/reading"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// scope has what a subject depends on.
type scope struct {
	*facts
	parts    map[string]bool // claims, classes of claims, file systems with their Jobs, and nodes; nil is all
	claimsOf string          // the claims of a file system
}

func (f *facts) scopeOf(subject Subject) *scope {
	s := &scope{facts: f, parts: map[string]bool{}}
	switch subject.Kind {
	case KindClaim:
		s.addClaim(subject.NamespacedName)
	case KindSharedVolume:
		s.addClaim(types.NamespacedName{Namespace: subject.Namespace, Name: wellknown.SharedClaimPrefix + subject.Name})
		if shared := f.shared[subject.NamespacedName]; shared != nil {
			s.parts[named(KindFileSystem, shared.Spec.FileSystemID)] = true
		}
	case KindPod:
		if pod := f.users[subject.NamespacedName]; pod != nil {
			s.parts[named(KindNode, pod.Spec.NodeName)] = true
			for _, claim := range f.claimsOf(pod) {
				s.addClaim(reading.NameOf(claim))
			}
		}
	case KindFileSystem:
		s.parts[subject.String()], s.claimsOf = true, subject.Name
	case KindNode:
		s.parts[subject.String()] = true
	default:
		s.parts = nil
	}
	// Where Jobs of the file systems are kept from running, their tunnels are.
	for _, j := range f.jobs {
		if pod := mountjobs.NewestPod(j.job, f.Pods); s.parts[named(KindFileSystem, j.outcome.Name.FileSystemID)] && j.reason != "" && pod != nil {
			s.parts[named(KindNode, pod.Spec.NodeName)] = true
		}
	}
	return s
}

func (s *scope) addClaim(name types.NamespacedName) {
	s.parts[named(KindClaim, name.String())] = true
	for _, pod := range s.usersOf(name) {
		s.parts[named(KindNode, pod.Spec.NodeName)] = true
	}
	claim := s.claims[name]
	if claim == nil {
		return
	}
	s.parts[named(KindClass, volumes.ClassName(claim))] = true
	s.parts[named(KindFileSystem, s.fileSystemOf(claim))] = true
	s.parts[named(KindNode, volumes.SelectedNode(claim))] = true
}

// has reports whether a subject has a result. Those of what no subject has of its own concern all.
func (s *scope) has(r Result) bool {
	kind, _ := split(r.part())
	isPart := slices.Contains([]string{KindClaim, KindClass, KindFileSystem, KindNode}, kind)
	return s.parts == nil || !isPart || s.parts[r.part()] || kind == KindClaim && s.claimsOf != "" && s.claimsOf == r.fileSystem
}

// Causes about a pod that uses claims.
const (
	PodMissing  Cause = "PodMissing"
	PodNotReady Cause = "PodNotReady"
	PodNotOurs  Cause = "PodNotOurs"
)

// checkPod is about the pod that was asked about. It comes last: what a pod waits for is in other checks.
func (f *facts) checkPod(subject Subject) []Examined {
	pod, object := f.users[subject.NamespacedName], subject.String()
	if subject.Kind != KindPod || pod == nil {
		return nil
	}
	result := Fine(object, "it is ready")
	switch why := PodProblem(pod); {
	case !f.lacks(claimResource) && len(f.claimsOf(pod)) == 0:
		result = note(PodNotOurs, object, "it uses no volume of efs-stunnel")
	case pod.DeletionTimestamp != nil:
		result = note(PodNotReady, object, "it is being deleted")
	case pod.Status.Phase == corev1.PodSucceeded:
		result = Fine(object, "it has ended")
	case why != "":
		result = note(PodNotReady, object, why)
	}
	return []Examined{{Check: "pod", Results: []Result{result}}}
}

func (f *facts) usersOf(claim types.NamespacedName) []*corev1.Pod {
	return keep(f.Users, func(pod *corev1.Pod) bool { return uses(pod, claim) })
}

func (f *facts) claimsOf(pod *corev1.Pod) []*corev1.PersistentVolumeClaim {
	return keep(f.Claims, func(claim *corev1.PersistentVolumeClaim) bool {
		return (f.isClaimOurs(claim) || f.sharedVolumeOf(claim) != nil) && uses(pod, reading.NameOf(claim))
	})
}

// uses reports whether a pod has a claim, or creates it as an ephemeral volume.
func uses(pod *corev1.Pod, claim types.NamespacedName) bool {
	return pod.Namespace == claim.Namespace && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		ephemeral := v.Ephemeral != nil && pod.Name+"-"+v.Name == claim.Name
		return ephemeral || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	})
}

// PodProblem returns why a pod is not ready, "" if it is or is being deleted.
func PodProblem(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil || mountjobs.IsReady(pod) {
		return ""
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if why := containerProblem(status); why != "" {
			return why
		}
	}
	failed := keep(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Status == corev1.ConditionFalse })
	unscheduled := first(failed, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	said := first(failed, func(c corev1.PodCondition) bool { return c.Message != "" })
	if unscheduled.Type != "" {
		return join("no node takes it", unscheduled.Message)
	}
	return cmp.Or(said.Message, pod.Status.Message, "it is not ready")
}

func containerProblem(status corev1.ContainerStatus) string {
	switch state, last := status.State, status.LastTerminationState.Terminated; {
	case state.Waiting != nil && state.Waiting.Reason != "ContainerCreating" && state.Waiting.Reason != "PodInitializing":
		why := state.Waiting.Message
		if why == "" && last != nil {
			why = last.Message
		}
		return fmt.Sprintf("container %s waits: %s", status.Name, join(state.Waiting.Reason, why))
	case state.Terminated != nil && state.Terminated.ExitCode != 0:
		return fmt.Sprintf("container %s ended: %s", status.Name, join(state.Terminated.Reason, state.Terminated.Message))
	}
	return ""
}
