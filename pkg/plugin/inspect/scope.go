package inspect

import (
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
