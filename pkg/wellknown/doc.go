// Package wellknown holds the names and numbers that users, manifests and our programs
// must agree on: annotations, labels, finalizers, event reasons, installed names, defaults.
//
// It imports the standard library only, so that every package, also those linked into
// mountjob, can use it.
package wellknown

// Domains that own keys. A key is below a domain when its prefix is the domain or ends in
// "." and the domain.
const (
	// Domain is ours; claims may not copy keys below it to their volumes.
	Domain = "gnuthought.com"
	// KubernetesDomain is the cluster's: no provisioner of this name space may be chosen,
	// because the binder would take its volumes for its own.
	KubernetesDomain = "kubernetes.io"
	// KubernetesShortDomain is the cluster's other domain, refused in claims like the first.
	KubernetesShortDomain = "k8s.io"
)

// keyPrefix starts every annotation, label, finalizer and taint that this project invented.
const keyPrefix = "efs-stunnel." + Domain + "/"
