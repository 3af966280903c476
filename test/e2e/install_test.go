//go:build e2e

package e2e

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// overlaysAreAccepted sends everything that users can apply to the apiserver, without effect.
// Objects of kinds that only other products bring are left out.
func overlaysAreAccepted(l *lab) {
	l.namespace("openshift-efs-stunnel") // what is in it cannot be tried without
	for _, folder := range []string{
		"deploy/kustomize/overlays/lab", "deploy/kustomize/overlays/eks", "deploy/kustomize/overlays/openshift",
		"test/e2e/testdata/components", "examples",
	} {
		var known []string
		for text := range strings.SplitSeq(l.kubectl("kustomize", folder), "\n---\n") {
			var object struct{ APIVersion string }
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				l.Fatalf("%s: %v", folder, err)
			}
			if isKubernetes(object.APIVersion) {
				known = append(known, text)
			}
		}
		told, err := l.tryKubectl(strings.Join(known, "\n---\n"), "apply", "--dry-run=server", "-f", "-")
		if err != nil || strings.Contains(told, "Warning") {
			l.Errorf("%s: %v\n%s", folder, err, told)
		}
	}
}

// isKubernetes: groups of others have a domain that is not below k8s.io.
func isKubernetes(apiVersion string) bool {
	group, _, _ := strings.Cut(apiVersion, "/")
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// uninstallIsClean follows docs/operations.md: Retain on what is to be kept, then what uses volumes,
// then the product, then its root volumes.
func uninstallIsClean(l *lab) {
	const (
		ns         = "uninstall"
		finalizers = `jsonpath={range .items[*]}{.metadata.name} {.metadata.finalizers}{"\n"}{end}`
	)
	l.kubectl("create", "namespace", ns)
	l.apply(ns, claim("goes", class, "volume_name: goes")+claim("stays", class, "volume_name: stays"))
	goes, stays := l.claimed(ns, "goes"), l.claimed(ns, "stays")
	goes.write("not wanted")
	stays.write("wanted")
	l.kubectl("patch", "pv", stays.volume, "-p", `{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}`)
	l.kubectl("delete", "namespace", ns, "--timeout="+limit.String())
	l.eventually("nothing to be under way", func() string {
		underWay := l.kubectl("get", "pv", "-o", finalizers) + l.kubectl("-n", system, "get", "jobs", "-o", finalizers)
		if strings.Contains(underWay, "external-provisioner") || strings.Contains(underWay, "efs-stunnel.gnuthought.com") {
			return underWay
		}
		return ""
	})
	l.wait(ns, "delete", "pv/"+goes.volume)
	goes.wantGone()

	l.kubectl("-n", system, "delete", "jobs", "--all", "--cascade=foreground", "--timeout="+limit.String())
	l.kubectl("delete", "-k", sharedVolumes, "--ignore-not-found", "--timeout="+limit.String())
	l.kubectl("delete", "-k", "deploy/kustomize/overlays/lab", "--timeout="+limit.String())
	l.kubectl("delete", "pv", "-l", "root_key", "--timeout="+limit.String())
	l.kubectl("delete", "pv", stays.volume, "--timeout="+limit.String())
	stays.want("file", "wanted")
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
