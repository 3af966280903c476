package inspect

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// HostNameShared is about nodes that NFS servers take for one client.
const HostNameShared Cause = "HostNameShared"

// HostNames returns a problem for each node that has the host name of another. The server ends opens and locks of the
// one when the other mounts a file system.
func HostNames(nodes []*corev1.Node, hostName func(*corev1.Node) string) []Result {
	byName := map[string][]string{}
	for _, node := range nodes {
		name := hostName(node)
		byName[name] = append(byName[name], node.Name)
	}
	var results []Result
	for _, node := range nodes {
		name := hostName(node)
		if same := byName[name]; name != "" && len(same) > 1 {
			results = append(results, problem(HostNameShared, "node "+node.Name,
				fmt.Sprintf("%s have the host name %s, so a file system takes them for one NFS client: each one's start ends the other's open files and locks", fewOf(same), name),
				"give each node a host name of its own, or another identity by the kernel's parameter nfs.nfs4_unique_id: "+wellknown.DocsURL+"tasks/node-names.md").ofNode(node.Name))
		}
	}
	return results
}

// fewOf lists at most three nodes.
func fewOf(nodes []string) string {
	const most = 3
	if more := len(nodes) - most; more > 0 {
		return fmt.Sprintf("nodes %s and %d more", strings.Join(nodes[:most], ", "), more)
	}
	return "nodes " + strings.Join(nodes, ", ")
}

// checkHostNames knows the names that kubelets have reported as labels.
func (f *facts) checkHostNames() []Result {
	return HostNames(f.Nodes, func(node *corev1.Node) string { return node.Labels[corev1.LabelHostname] })
}
