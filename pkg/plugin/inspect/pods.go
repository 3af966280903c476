package inspect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Causes about a pod that uses claims.
const (
	PodMissing  Cause = "PodMissing"
	PodNotReady Cause = "PodNotReady"
	PodNotOurs  Cause = "PodNotOurs"
)

// checkPod is about the pod that was asked about. It comes last: what a pod waits for is in other checks.
func (f *facts) checkPod(name types.NamespacedName) []Examined {
	pod := f.user(name)
	if pod == nil {
		return nil
	}
	object := "pod " + name.String()
	result := fine(object, "it is ready")
	switch why := PodProblem(pod); {
	case !f.lacks(claimResource) && len(f.claimsOf(pod)) == 0:
		result = note(PodNotOurs, object, "it uses no volume of efs-stunnel")
	case pod.DeletionTimestamp != nil:
		result = note(PodNotReady, object, "it is being deleted")
	case pod.Status.Phase == corev1.PodSucceeded:
		result = fine(object, "it has ended")
	case why != "":
		result = note(PodNotReady, object, why)
	}
	result.node = pod.Spec.NodeName
	return []Examined{{Check: "pod", Results: []Result{result}}}
}

func (f *facts) user(name types.NamespacedName) *corev1.Pod {
	for _, pod := range f.Users {
		if pod.Namespace == name.Namespace && pod.Name == name.Name {
			return pod
		}
	}
	return nil
}

// claimsOf are the claims of efs-stunnel that a pod uses.
func (f *facts) claimsOf(pod *corev1.Pod) (claims []*corev1.PersistentVolumeClaim) {
	for _, claim := range f.Claims {
		if (f.isClaimOurs(claim) || f.sharedVolumeOf(claim) != nil) && uses(pod, nameOf(claim)) {
			claims = append(claims, claim)
		}
	}
	return claims
}

// uses says whether a pod has a claim, or creates it as an ephemeral volume.
func uses(pod *corev1.Pod, claim types.NamespacedName) bool {
	return pod.Namespace == claim.Namespace && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		ephemeral := v.Ephemeral != nil && pod.Name+"-"+v.Name == claim.Name
		return ephemeral || v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
	})
}
