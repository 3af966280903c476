//go:build e2e

package e2e

import "strings"

// uninstallIsClean follows docs/tasks/uninstall.md: first the policy Retain for the data to keep, then the
// deletion of all that uses volumes, of the product, and of its root volumes.
func uninstallIsClean(l *lab) {
	const (
		ns         = "uninstall"
		finalizers = `jsonpath={range .items[*]}{.metadata.name} {.metadata.finalizers}{"\n"}{end}`
	)
	l.kubectl("create", "namespace", ns)
	l.apply(ns, claim("goes", class, "volume_name: goes")+claim("stays", class, "volume_name: stays"))
	goes, stays := l.waitForClaim(ns, "goes"), l.waitForClaim(ns, "stays")
	goes.write("not wanted")
	stays.write("wanted")
	l.kubectl("patch", "pv", stays.volume, "-p", `{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}`)
	l.kubectl("delete", "namespace", ns, "--timeout="+limit.String())
	l.eventually("all operations to end", func() string {
		unfinished := l.kubectl("get", "pv", "-o", finalizers) + l.kubectl("-n", system, "get", "jobs", "-o", finalizers)
		if strings.Contains(unfinished, "external-provisioner") || strings.Contains(unfinished, "efs-stunnel.gnuthought.com") {
			return unfinished
		}
		return ""
	})
	l.wait(ns, "delete", "pv/"+goes.volume)
	goes.waitForRemoved()

	l.kubectl("-n", system, "delete", "jobs", "--all", "--cascade=foreground", "--timeout="+limit.String())
	l.kubectl("delete", "-k", sharedVolumes, "--ignore-not-found", "--timeout="+limit.String())
	l.kubectl("-n", system, "delete", "deployments,daemonsets", "--all", "--cascade=foreground", "--timeout="+limit.String())
	l.kubectl("delete", "-k", "deploy/kustomize/overlays/lab", "--ignore-not-found", "--timeout="+limit.String())
	l.kubectl("delete", "pv", "-l", "root_key", "--timeout="+limit.String())
	l.kubectl("delete", "pv", stays.volume, "--timeout="+limit.String())
	stays.expectFile("file", "wanted")
	const kinds = "ns,pv,pvc,sc,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
	left := l.kubectl("get", kinds, "-A", "-o", "name")
	if strings.Contains(left, "efs-") || strings.Contains(left, "persistentvolume/") {
		l.Errorf("this is left:\n%s", left)
	}
	for _, node := range []string{"node-1", "node-2"} {
		if out := l.onNode(node, "pgrep -l stunnel || true"); out != "" {
			l.Errorf("%s runs %s", node, out)
		}
	}
}
