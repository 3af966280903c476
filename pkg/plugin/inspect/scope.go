package inspect

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// scope is what a subject depends on.
type scope struct {
	all         bool
	claims      map[types.NamespacedName]bool
	classes     map[string]bool // of the claims
	fileSystems map[string]bool // with their Jobs
	claimsOf    string          // the claims of a file system
	nodes       map[string]bool
}

func (f *facts) scopeOf(subject Subject) scope {
	r := scope{claims: map[types.NamespacedName]bool{}, classes: map[string]bool{}, fileSystems: map[string]bool{}, nodes: map[string]bool{}}
	switch {
	case subject.Claim.Name != "":
		r.claims[subject.Claim] = true
		if claim := f.claim(subject.Claim); claim != nil {
			r.add(f, claim)
		}
	case subject.SharedVolume.Name != "":
		claim := types.NamespacedName{Namespace: subject.SharedVolume.Namespace, Name: wellknown.SharedClaimPrefix + subject.SharedVolume.Name}
		r.claims[claim] = true
		if shared := f.sharedVolume(subject.SharedVolume); shared != nil {
			r.fileSystems[shared.Spec.FileSystemID] = true
			r.addNodesOf(f, claim)
		}
	case subject.Pod.Name != "":
		r.addPod(f, subject.Pod)
	case subject.FileSystem != "":
		r.fileSystems[subject.FileSystem], r.claimsOf = true, subject.FileSystem
		r.addNodesOfJobs(f)
	case subject.Node != "":
		r.nodes[subject.Node] = true
	default:
		r.all = true
	}
	return r
}

// addPod adds the pod's node, and its claims.
func (r *scope) addPod(f *facts, name types.NamespacedName) {
	pod := f.user(name)
	if pod == nil {
		return
	}
	if pod.Spec.NodeName != "" {
		r.nodes[pod.Spec.NodeName] = true
	}
	for _, claim := range f.claimsOf(pod) {
		r.claims[nameOf(claim)] = true
		r.add(f, claim)
	}
}

func (r *scope) add(f *facts, claim *corev1.PersistentVolumeClaim) {
	r.classes[volumes.ClassName(claim)] = true
	if id := f.fileSystemOf(claim); id != "" {
		r.fileSystems[id] = true
	}
	r.addNodesOf(f, nameOf(claim))
	if node := volumes.SelectedNode(claim); node != "" {
		r.nodes[node] = true
	}
	r.addNodesOfJobs(f)
}

// addNodesOf adds where the pods of a claim are.
func (r *scope) addNodesOf(f *facts, claim types.NamespacedName) {
	for _, pod := range f.usersOf(claim) {
		if pod.Spec.NodeName != "" {
			r.nodes[pod.Spec.NodeName] = true
		}
	}
}

// addNodesOfJobs adds where Jobs of the file systems are kept from running: their tunnels are there.
func (r *scope) addNodesOfJobs(f *facts) {
	for _, j := range f.jobs {
		if pod := podOf(j.job, f.Pods); r.fileSystems[j.status.Name.FileSystemID] && j.reason != "" && pod != nil {
			r.nodes[pod.Spec.NodeName] = true
		}
	}
}

func (r *scope) has(result Result) bool {
	switch {
	case r.all:
		return true
	case result.installation:
		return false
	case result.claim.Name != "":
		return r.claims[result.claim] || r.claimsOf != "" && r.claimsOf == result.fileSystem
	case result.class != "":
		return r.classes[result.class]
	case result.fileSystem != "":
		return r.fileSystems[result.fileSystem]
	case result.node != "":
		return r.nodes[result.node]
	}
	return true
}

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
