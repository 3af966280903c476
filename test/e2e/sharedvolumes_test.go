//go:build e2e

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
)

const sharedVolumes = "test/e2e/testdata/shared-volumes"

// installSharedVolumes follows docs/tasks/shared-volumes.md, and gives the scenario of any cluster an access point.
func (l *lab) installSharedVolumes() {
	l.Helper()
	// kubectl creates the definition first, and a manager that watches before it has the rights is refused.
	l.kubectl("apply", "-f", "deploy/kustomize/components/shared-volumes/rbac.yaml")
	l.kubectl("apply", "-k", sharedVolumes)
	l.kubectl("wait", "--for=condition=Established", "crd", "sharedvolumes.efs-stunnel.gnuthought.com", "--timeout="+limit.String())
	l.sharedPoint = shared + "::" + l.accessPoint(shared, "/points/sky", "1000:1000")
}

// accessPointsHaveOwners: what a pod writes is the access point's user's, and stays when the last
// SharedVolume is deleted.
func accessPointsHaveOwners(l *lab) {
	ns := l.namespace("owners")
	blue, green := l.accessPoint(shared, "/points/blue", "1001:2001"), l.accessPoint(shared, "/points/green", "1002:2002")
	l.apply(ns, sharedVolume("blue", shared, "accessPointID: "+blue)+sharedVolume("green", shared, "accessPointID: "+green)+
		userOf("node-1", "pvc-blue", "pvc-green"))
	l.wait(ns, "condition=Ready", "sv/blue", "sv/green", "pod/user")
	l.inPod(ns, "echo of blue > /pvc-blue/file; echo of green > /pvc-green/file")
	l.expectOwnedFile(shared, "/points/blue/file", "of blue\n", 1001, 2001)
	l.expectOwnedFile(shared, "/points/green/file", "of green\n", 1002, 2002)
	l.inPod(ns, `[ "$(stat -c %u:%g /pvc-blue)" = 1001:2001 ] && [ "$(ls /pvc-green)" = file ]`)

	l.kubectl("-n", ns, "delete", "pod", "user")
	l.kubectl("-n", ns, "delete", "sv", "--all", "--timeout="+limit.String())
	if left := l.kubectl("get", "pv,pvc", "-A", "-l", "app.kubernetes.io/managed-by=efs-manager", "-o", "name"); strings.Contains(left, "blue") || strings.Contains(left, "green") {
		l.Errorf("this is left:\n%s", left)
	}
	l.eventually("the ports of the access points to go", func() string {
		if table := l.table(); strings.Contains(table, blue) || strings.Contains(table, green) {
			return table
		}
		return ""
	})
	l.expectOwnedFile(shared, "/points/blue/file", "of blue\n", 1001, 2001)
}

// signingTunnelIsAdmitted by a file system that requires signatures: the stand-in checks the product's
// certificates with code of its own.
func signingTunnelIsAdmitted(l *lab) {
	ns := l.namespace("sv-iam")
	fileSystem := l.newFileSystem("signed")
	l.lab("efs", "update-file-system", fileSystem, "--require-iam")
	signed, bare := l.accessPoint(fileSystem, "/signed", "1003:2003"), l.accessPoint(fileSystem, "/bare", "1004:2004")
	l.apply(ns, sharedVolume("signed", fileSystem, "accessPointID: "+signed, "iam: true")+
		sharedVolume("bare", fileSystem, "accessPointID: "+bare)+userOf("node-1", "pvc-signed"))
	l.wait(ns, "condition=Ready", "sv/signed", "sv/bare", "pod/user")
	l.inPod(ns, "echo proven > /pvc-signed/file")
	l.expectOwnedFile(fileSystem, "/signed/file", "proven\n", 1003, 2003)
	l.eventually("the tunnel that does not sign to be refused, and its node to say so", func() string {
		output := l.kubectl("get", "events", "--field-selector", "reason=TunnelUnhealthy", "-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		if !slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
			return strings.Contains(line, bare) && strings.Contains(line, "(Denied)")
		}) {
			return "the events say " + output
		}
		if status := l.lab("efs", "status", "-o", "json"); !strings.Contains(status, `"iam-missing"`) {
			return status
		}
		return ""
	})

	l.kubectl("-n", ns, "delete", "pod", "user")
	l.kubectl("delete", "sv", "--all", "--all-namespaces", "--timeout="+limit.String())
	l.deleteFileSystem(fileSystem)
}

// userOf is userAnywhere on a node.
func userOf(node string, claims ...string) string { return pinned(node, userAnywhere(claims...)) }

// accessPoint makes an access point whose user owns its root directory.
func (l *lab) accessPoint(fileSystem, path, owner string) (id string) {
	l.Helper()
	return strings.TrimSpace(l.lab("efs", "create-access-point", "--file-system", fileSystem, "--path", path, "--owner", owner, "--user", owner))
}

// expectOwnedFile compares content and owner of a file on the server.
func (l *lab) expectOwnedFile(fileSystem, path, text string, uid, gid uint32) {
	l.Helper()
	file := directory{lab: l, fileSystem: fileSystem, path: filepath.Dir(path)}
	file.expectFile(filepath.Base(path), text)
	if stat := file.stat(filepath.Base(path)); stat.Uid != uid || stat.Gid != gid {
		l.Errorf("%s is of %d:%d, want %d:%d", path, stat.Uid, stat.Gid, uid, gid)
	}
}

// pinned has a pod run on a node, and tolerate the taint of nodeIsAddedLater.
func pinned(node, pod string) string {
	return strings.Replace(pod, "spec:\n", "spec:\n  nodeSelector: {kubernetes.io/hostname: "+node+"}\n  tolerations: [{key: e2e, operator: Exists}]\n", 1)
}
