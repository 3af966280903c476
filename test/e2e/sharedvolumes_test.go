//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const sharedVolumes = "test/e2e/testdata/shared-volumes"

// sharedVolumesServe follows docs/shared-volumes.md, from installation to the last SharedVolume's deletion.
func sharedVolumesServe(l *lab) {
	// kubectl creates the definition first, and a manager that watches before it has the rights is refused.
	l.kubectl("apply", "-f", "deploy/kustomize/components/shared-volumes/rbac.yaml")
	l.kubectl("apply", "-k", sharedVolumes)
	l.kubectl("wait", "--for=condition=Established", "crd", "sharedvolumes.efs-stunnel.gnuthought.com", "--timeout="+limit.String())
	one, other := l.namespace("sv-one"), l.namespace("sv-other")
	blue, green := l.accessPoint(shared, "/points/blue", "1001:2001"), l.accessPoint(shared, "/points/green", "1002:2002")
	l.apply(one, sharedVolume("blue", shared, "accessPointID: "+blue)+sharedVolume("green", shared, "accessPointID: "+green)+
		userOf("node-1", "pvc-blue", "pvc-green"))
	l.apply(other, sharedVolume("sky", shared, "accessPointID: "+blue)+userOf("node-2", "pvc-sky"))
	l.wait(one, "condition=Ready", "sv/blue", "sv/green", "pod/user")
	l.wait(other, "condition=Ready", "sv/sky", "pod/user")

	l.inPod(one, "echo of blue > /pvc-blue/file; echo of green > /pvc-green/file")
	l.expectOwnedFile(shared, "/points/blue/file", "of blue\n", 1001, 2001)
	l.expectOwnedFile(shared, "/points/green/file", "of green\n", 1002, 2002)
	l.inPod(one, `[ "$(stat -c %u:%g /pvc-blue)" = 1001:2001 ] && [ "$(ls /pvc-green)" = file ]`)
	l.inPod(other, `[ "$(head -n 1 /pvc-sky/file)" = "of blue" ] && { grep -qx "of sky" /pvc-sky/file || echo of sky >> /pvc-sky/file; }`)
	l.inPod(one, `grep "of sky" /pvc-blue/file`)

	output, err := l.tryKubectl("", "-n", one, "patch", "sv", "blue", "--type=merge", "-p", `{"spec": {"readOnly": true}}`)
	if err == nil || !strings.Contains(output, "delete it and make it anew") {
		l.Errorf("a SharedVolume was changed, %v: %s", err, output)
	}
	l.expectRecreated(one, "pv/pv-"+one+"-blue")
	l.inPod(one, `grep "of sky" /pvc-blue/file`)
	for _, ns := range []string{one, other} {
		l.kubectl("-n", ns, "delete", "pod", "user")
	}
	l.expectRecreated(one, "pvc/pvc-green")

	l.kubectl("delete", "sv", "--all", "--all-namespaces", "--timeout="+limit.String())
	if left := l.kubectl("get", "pv,pvc", "--all-namespaces", "-l", "app.kubernetes.io/managed-by=efs-manager", "-o", "name"); left != "" {
		l.Errorf("this is left:\n%s", left)
	}
	l.eventually("the ports of the access points to go", func() string {
		if table := l.table(); strings.Contains(table, "fsap-") {
			return table
		}
		return ""
	})
	l.expectOwnedFile(shared, "/points/blue/file", "of blue\nof sky\n", 1001, 2001)
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

// sharedVolume is the manifest of a SharedVolume, with further fields of its spec.
func sharedVolume(name, fileSystem string, fields ...string) string {
	return fmt.Sprintf(`apiVersion: efs-stunnel.gnuthought.com/v1alpha1
kind: SharedVolume
metadata: {name: %s}
spec: {fileSystemID: %s, %s}
---
`, name, fileSystem, strings.Join(fields, ", "))
}

// userOf is the manifest of the pod user on a node, with each of the claims mounted at /<claim>.
func userOf(node string, claims ...string) string { return pinned(node, userAnywhere(claims...)) }

// userAnywhere is userOf on any node.
func userAnywhere(claims ...string) string {
	var mounts, volumes []string
	for _, claim := range claims {
		mounts = append(mounts, fmt.Sprintf("{name: %[1]s, mountPath: /%[1]s}", claim))
		volumes = append(volumes, fmt.Sprintf("{name: %[1]s, persistentVolumeClaim: {claimName: %[1]s}}", claim))
	}
	return user(strings.Join(mounts, ", "), strings.Join(volumes, ", "))
}

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

// expectRecreated deletes a SharedVolume's claim or volume, and waits until it is created again.
func (l *lab) expectRecreated(namespace, object string) {
	l.Helper()
	uid := l.kubectl("-n", namespace, "get", object, "-o", "jsonpath={.metadata.uid}")
	l.kubectl("-n", namespace, "delete", object, "--wait=false")
	l.waitForSuccessor(namespace, object, uid)
	l.wait(namespace, "condition=Ready", "sv", "--all")
}
