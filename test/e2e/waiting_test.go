//go:build e2e

package e2e

import (
	"strconv"
	"strings"
)

// waiting changes a class to WaitForFirstConsumer: its claims wait until the scheduler has selected a node
// for their pod.
func waiting(class string) string {
	return strings.Replace(class, "---\n", "volumeBindingMode: WaitForFirstConsumer\n---\n", 1)
}

// classesShapeDirectories: a class says when directories are made, where, and with which owner, group
// and mode. A pod that is not root writes to one directory as its owner, to another through the supplemental
// group that the kubelet takes from the volume, and to a subPath of a third, which the kubelet makes, through the
// class's group. A claim of ReadOnlyMany of that directory cannot be written to.
func classesShapeDirectories(l *lab) {
	ns := l.namespace("shapes")
	l.classes(waiting(classText("e2e-owned", "base_path: /e2e/volumes", "uid: '5001'", "gid: '5002'", "directory_perms: '0700'"))+
		waiting(classText("e2e-group", "gidAllocate: 'true'", "gidMin: '40000'", "gidMax: '50000'"))+
		waiting(classText("e2e-writers", "gid: '5003'", "directory_perms: '0770'")),
		"e2e-owned", "e2e-group", "e2e-writers")
	names := []string{"owned", "group", "app", "reader"}
	l.apply(ns, claim("owned", "e2e-owned", "volume_name: data")+claim("group", "e2e-group")+claim("app", "e2e-writers", "volume_name: app")+
		strings.Replace(claim("reader", "e2e-writers", "volume_name: app"), "ReadWriteMany", "ReadOnlyMany", 1))
	for _, name := range names {
		l.waitForEvent(ns, name, "WaitForFirstConsumer", "waiting for first consumer")
	}
	if volumes := l.kubectl("-n", ns, "get", "pvc", "-o", "jsonpath={.items[*].spec.volumeName}"); volumes != "" {
		l.Errorf("there are volumes before there is a pod: %s", volumes)
	}

	// The pod's own group owns the third directory only.
	const security = "spec:\n  securityContext: {runAsNonRoot: true, runAsUser: 5001, runAsGroup: 5003}\n"
	user := strings.Replace(userAnywhere(names...), "mountPath: /app}", "mountPath: /app, subPath: html}", 1)
	l.apply(ns, strings.Replace(user, "spec:\n", security, 1))
	owned, group, app := l.waitForClaim(ns, "owned"), l.waitForClaim(ns, "group"), l.waitForClaim(ns, "app")
	l.wait(ns, "condition=Ready", "pod/user")
	node := l.kubectl("-n", ns, "get", "pod", "user", "-o", "jsonpath={.spec.nodeName}")
	if chosen := l.kubectl("-n", ns, "get", "pvc", "-o", `jsonpath={.items[*].metadata.annotations.volume\.kubernetes\.io/selected-node}`); chosen != strings.TrimSpace(strings.Repeat(node+" ", len(names))) {
		l.Errorf("the claims are for the nodes %q, the pod is on %s", chosen, node)
	}

	gid := group.allocatedGID()
	if want := "/e2e/volumes/" + ns + "/data"; owned.path != want {
		l.Errorf("the directory is %s, want %s", owned.path, want)
	}
	owned.expectMode(5001, 5002, 0o700)
	group.expectMode(0, gid, 0o2771)
	l.inPod(ns, "echo of the owner > /owned/file; echo of the group > /group/file")
	l.expectOwnedFile(owned.fileSystem, owned.path+"/file", "of the owner\n", 5001, 5003)
	l.expectOwnedFile(group.fileSystem, group.path+"/file", "of the group\n", 5001, gid)

	app.expectMode(0, 5003, 0o2770)
	l.inPod(ns, "echo of the app > /app/file")
	l.expectOwnedFile(app.fileSystem, app.path+"/html/file", "of the app\n", 5001, 5003)
	l.inPod(ns, `grep -qx "of the app" /reader/html/file; touch /reader/html/file 2>&1 | grep "Read-only file system"`)
}

// allocatedGID returns the supplemental group of pods with the volume.
func (d directory) allocatedGID() uint32 {
	d.lab.Helper()
	text := d.lab.kubectl("get", "pv", d.volume, "-o", `jsonpath={.metadata.annotations.pv\.beta\.kubernetes\.io/gid}`)
	gid, err := strconv.ParseUint(text, 10, 32)
	if err != nil || gid < 40000 || gid > 50000 {
		d.lab.Fatalf("volume %s has the gid %q, %v; want one from 40000 to 50000", d.volume, text, err)
	}
	return uint32(gid)
}

// expectMode compares owner, group and Unix mode of the directory.
func (d directory) expectMode(uid, gid, mode uint32) {
	d.lab.Helper()
	if stat := d.stat(""); stat.Uid != uid || stat.Gid != gid || stat.Mode&0o7777 != mode {
		d.lab.Errorf("%s is of %d:%d with mode %04o, want %d:%d with mode %04o", d.path, stat.Uid, stat.Gid, stat.Mode&0o7777, uid, gid, mode)
	}
}

// oneZonePodsRunInItsZone: the manager asks the scheduler for another node where a pod's node is in another
// zone than the file system, and the volume's node affinity keeps pods in the file system's zone.
func oneZonePodsRunInItsZone(l *lab) {
	const zone = "us-east-1b" // of node-2
	ns := l.namespace("one-zone")
	fileSystem := strings.TrimSpace(l.lab("efs", "create-file-system", "--fs-name", "one-zone", "--one-zone", zone))
	l.makeMountTargets(fileSystem, zone)
	l.classes(waiting(classText("e2e-one-zone", "default_file_system_id: "+fileSystem, "enforce_zone_affinity: 'true'")), "e2e-one-zone")
	l.apply(ns, claim("data", "e2e-one-zone")+userOf("node-1", "data"))
	l.waitForEvent(ns, "data", "ProvisioningFailed", "where node node-1 is: asking the scheduler for another node")
	l.kubectl("-n", ns, "delete", "pod", "user", "--timeout="+limit.String())

	l.apply(ns, userOf("node-2", "data"))
	data := l.waitForClaim(ns, "data")
	zones := l.kubectl("get", "pv", data.volume, "-o", "jsonpath={.spec.nodeAffinity.required.nodeSelectorTerms[*].matchExpressions[*].values[*]}")
	if data.fileSystem != fileSystem || zones != zone {
		l.Errorf("the volume is on %s, for pods in zone %q; want %s and %s", data.fileSystem, zones, fileSystem, zone)
	}
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo near > /data/file")
	data.expectFile("file", "near\n")

	l.kubectl("-n", ns, "delete", "pod", "user", "--timeout="+limit.String())
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	data.waitForRemoved()
	l.deleteFileSystem(fileSystem)
}
