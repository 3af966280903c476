// Package wellknown has the names and numbers that users, manifests and our programs must agree on:
// annotations, labels, finalizers, event reasons, installed names, defaults.
//
// It imports the standard library only, because mountjob links it, too.
package wellknown

// Domains of keys. A key is below a domain when its prefix is the domain or ends in "." and the domain.
const (
	Domain = "gnuthought.com" // ours; claims may not copy keys below it to their volumes
	// KubernetesDomain is Kubernetes'. A provisioner below it is refused, because the binder would
	// treat its volumes as those of an in-tree provisioner.
	KubernetesDomain      = "kubernetes.io"
	KubernetesShortDomain = "k8s.io" // Kubernetes' other domain; claims may not copy keys below either
)

// keyPrefix starts all of our annotations, labels, finalizers and taints.
const keyPrefix = "efs-stunnel." + Domain + "/"
