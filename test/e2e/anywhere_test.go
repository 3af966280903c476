//go:build e2e || acceptance

package e2e

import (
	"fmt"
	"strings"
)

// anywhere are the scenarios that need nothing but kubectl. They run in the lab, and with make acceptance on
// any cluster.
type anywhere struct {
	name string
	run  func(*cluster)
}

// claimsAnywhere change their own claims only, and run side by side. In the lab they run with -long only: scenarios that
// read the files on the server, and tests without nodes, prove the same.
var claimsAnywhere = []anywhere{
	{"deleted data comes back into a new claim", deletedDataIsRestored},
	{"a claim that grows has its size at once", claimGrows},
	{"SharedVolumes give an access point to namespaces", sharedVolumesShareAnAccessPoint},
	{"a claim is written on one node and read on another", claimIsReadOnAnotherNode},
	{"claims of one volume_name share a directory", claimsShareADirectory},
	{"readers cannot write, and a claim for one pod has one", accessModesHold},
	{"namespaces have separate directories", namespacesAreSeparate},
	{"a deleted directory is gone, and no other", deletedDirectoryIsGone},
	{"each pod of a StatefulSet has a directory, which outlives it", statefulSetKeepsItsDirectories},
}

// upkeepAnywhere change what others use: the product's pods, and a node.
var upkeepAnywhere = []anywhere{
	{"a pod writes while the product's pods are replaced", writerSurvivesAnUpgrade},
	{"a writer of a drained node continues on another one", drainedWriterContinuesElsewhere},
}

func claimIsReadOnAnotherNode(c *cluster) {
	c.requireAnotherNode()
	ns := c.namespace("nodes")
	c.apply(ns, claim("data", c.class)+writerSet+readerPod)
	c.wait(ns, "condition=Ready", "pod/listener")
	c.eventually("the reader to have ten lines of the writer", func() string {
		log, err := c.podLog(ns, "listener")
		if err != nil {
			return err.Error()
		}
		lines, err := parseLines(log)
		if err != nil {
			c.Fatal(err)
		}
		if len(lines) < 10 {
			return fmt.Sprintf("it has %d", len(lines))
		}
		return ""
	})
}

// claimsShareADirectory: each of two claims has the files that were written through the other, which stay
// when one is deleted.
func claimsShareADirectory(c *cluster) {
	ns := c.namespace("sharing")
	c.apply(ns, claim("one", c.class, "volume_name: common"))
	one := c.waitForVolume(ns, "one")
	c.apply(ns, claim("other", c.class, "volume_name: common", "file_system_id: "+c.fileSystemOf(one)))
	other := c.waitForVolume(ns, "other")
	if path, otherPath := c.pathOf(one), c.pathOf(other); path != otherPath || one == other {
		c.Errorf("volume %s has %s, volume %s has %s", one, path, other, otherPath)
	}
	c.startUser(ns, "one", "other")
	c.inPod(ns, `echo of one > /one/first; echo of the other > /other/second
		grep -qx "of one" /other/first && grep -qx "of the other" /one/second`)

	c.deleteUser(ns)
	c.deleteClaim(ns, "one", one)
	c.startUser(ns, "other")
	c.inPod(ns, `grep -qx "of one" /other/first && grep -qx "of the other" /other/second`)
}

// accessModesHold: ReadOnlyMany also for root, whose pod asks for nothing else, and ReadWriteOncePod.
func accessModesHold(c *cluster) {
	ns := c.namespace("modes")
	c.apply(ns, claim("writer", c.class, "volume_name: common"))
	fileSystem := "file_system_id: " + c.fileSystemOf(c.waitForVolume(ns, "writer"))
	c.apply(ns, strings.Replace(claim("reader", c.class, "volume_name: common", fileSystem), "ReadWriteMany", "ReadOnlyMany", 1)+
		strings.Replace(claim("alone", c.class), "ReadWriteMany", "ReadWriteOncePod", 1))
	c.waitForVolume(ns, "reader")
	c.startUser(ns, "writer", "reader", "alone")
	c.inPod(ns, `echo of the writer > /writer/file; echo of the pod > /alone/file
		if echo of a reader > /reader/file; then exit 1; fi
		if rm /reader/file; then exit 1; fi
		if mount -o remount,rw /reader; then exit 1; fi
		grep -qx "of the writer" /reader/file`)
	c.apply(ns, strings.Replace(userAnywhere("alone"), "name: user}", "name: second}", 1))
	c.waitForEvent(ns, "second", "FailedScheduling", "ReadWriteOncePod")
	c.kubectl("-n", ns, "delete", "pod", "second", "--timeout="+limit.String())
}

func namespacesAreSeparate(c *cluster) {
	one, other := c.namespace("apart-one"), c.namespace("apart-other")
	c.apply(one, claim("data", c.class, "volume_name: same"))
	first := c.waitForVolume(one, "data")
	c.apply(other, claim("data", c.class, "volume_name: same", "file_system_id: "+c.fileSystemOf(first)))
	if path := c.pathOf(first); path == c.pathOf(c.waitForVolume(other, "data")) {
		c.Errorf("both have %s", path)
	}
	c.startUser(one, "data")
	c.startUser(other, "data")
	c.inPod(one, "echo of the one > /data/file")
	c.inPod(other, `[ -z "$(ls -A /data)" ]`)
}

// deletedDirectoryIsGone for the next claim of its path, and another claim's directory is not.
func deletedDirectoryIsGone(c *cluster) {
	ns := c.namespace("gone")
	c.apply(ns, claim("goes", c.class, "volume_name: goes"))
	goes := c.waitForVolume(ns, "goes")
	fileSystem := "file_system_id: " + c.fileSystemOf(goes)
	c.apply(ns, claim("stays", c.class, "volume_name: stays", fileSystem))
	c.startUser(ns, "goes", "stays")
	c.inPod(ns, "echo of a claim that goes > /goes/file; echo of a claim that stays > /stays/file")

	c.deleteUser(ns)
	c.deleteClaim(ns, "goes", goes)
	c.apply(ns, claim("goes", c.class, "volume_name: goes", fileSystem))
	c.startUser(ns, "goes", "stays")
	c.inPod(ns, `[ -z "$(ls -A /goes)" ] && grep -qx "of a claim that stays" /stays/file`)
}

// deletedDataIsRestored from the trash to the directory of a new claim, and then removed for good, by the
// plugin of kubectl.
func deletedDataIsRestored(c *cluster) {
	c.requireRights(permission{"create", "jobs.batch", c.system}, permission{"delete", "jobs.batch", c.system})
	class := c.newClass(c.derived+"-trash", map[string]string{"keep_deleted": "2h"})
	ns := c.namespace("trash")
	c.apply(ns, claim("deleted", class, "volume_name: deleted"))
	deleted := c.waitForVolume(ns, "deleted")
	fileSystem, path := c.fileSystemOf(deleted), c.pathOf(deleted)
	trash := func(wantCode int, args ...string) (out string) {
		c.Helper()
		out, code := c.plugin(append(append([]string{"trash"}, args...), "--file-system="+fileSystem, "-n", ns)...)
		if code != wantCode {
			c.Fatalf("kubectl efs-stunnel trash %s ended with code %d, want %d", strings.Join(args, " "), code, wantCode)
		}
		return out
	}
	c.startUser(ns, "deleted")
	c.inPod(ns, "echo worth keeping > /deleted/file")
	c.deleteUser(ns)
	c.deleteClaim(ns, "deleted", deleted)
	c.expectOnServer(deleted, fileSystem, path, "trash")
	if out := trash(0, "list"); !strings.Contains(out, ns+"/deleted") || strings.Count(out, "\n") != 2 {
		c.Errorf("the trash should have the one directory:\n%s", out)
	}

	trash(2, "restore", "never-was")
	trash(0, "restore", "deleted", "--name=back", "--volume-name=back")
	back := c.waitForVolume(ns, "back")
	if got := c.pathOf(back); got != strings.TrimSuffix(path, "deleted")+"back" {
		c.Errorf("%s came back to %s", path, got)
	}
	c.expectOnServer(deleted, fileSystem, path, "")
	c.startUser(ns, "back")
	c.inPod(ns, `grep -qx "worth keeping" /back/file`)
	c.deleteUser(ns)
	c.deleteClaim(ns, "back", back)
	trash(0, "empty", "--claim=back", "--yes")
	if out := trash(0, "list", "-o", "json"); strings.TrimSpace(out) != "[]" {
		c.Errorf("the trash still has\n%s", out)
	}
}

func claimGrows(c *cluster) {
	ns := c.namespace("growth")
	c.apply(ns, claim("data", c.class))
	c.waitForVolume(ns, "data")
	c.kubectl("-n", ns, "patch", "pvc", "data", "--patch", `{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}`)
	c.wait(ns, "jsonpath={.status.capacity.storage}=2Gi", "pvc/data")
	c.wait(ns, "jsonpath={.status.allocatedResources.storage}=2Gi", "pvc/data")
}

// statefulSetKeepsItsDirectories: each pod finds the names of its predecessors in its own directory.
func statefulSetKeepsItsDirectories(c *cluster) {
	ns := c.namespace("statefulset")
	c.apply(ns, fmt.Sprintf(replicaSet, c.class))
	names := func(replica, want string) {
		c.Helper()
		c.kubectl("-n", ns, "rollout", "status", "statefulset/replica", "--timeout="+limit.String())
		c.eventually(replica+" to have its names", func() string {
			if got, err := c.tryKubectl("", "-n", ns, "exec", replica, "--", "cat", "/data/names"); err != nil || got != want {
				return fmt.Sprintf("it has %q, %v; want %q", got, err, want)
			}
			return ""
		})
	}
	names("replica-0", "replica-0\n")
	names("replica-1", "replica-1\n")
	c.kubectl("-n", ns, "delete", "pod", "replica-1", "--timeout="+limit.String())
	names("replica-1", "replica-1\nreplica-1\n")
	names("replica-0", "replica-0\n")
}

// sharedVolumesShareAnAccessPoint between two namespaces, are repaired, and leave nothing when they are deleted.
func sharedVolumesShareAnAccessPoint(c *cluster) {
	_, err := c.tryKubectl("", "get", "crd", "sharedvolumes.efs-stunnel.gnuthought.com")
	c.require(err == nil, "the component shared-volumes is not installed")
	c.require(c.sharedPoint != "", "it needs an access point: set ACCESS_POINT=FILE-SYSTEM::ACCESS-POINT")
	fileSystem, accessPoint, _ := strings.Cut(c.sharedPoint, "::")
	c.requireRights(permission{"create", "sharedvolumes.efs-stunnel.gnuthought.com", ""})
	one, other := c.namespace("sv-one"), c.namespace("sv-other")
	for _, ns := range []string{one, other} {
		c.apply(ns, sharedVolume("shared", fileSystem, "accessPointID: "+accessPoint))
		c.wait(ns, "condition=Ready", "sv/shared")
		c.startUser(ns, "pvc-shared")
	}
	file := "/pvc-shared/" + one // a user's access point may have others
	c.inPod(one, "echo of one > "+file)
	c.Cleanup(func() { c.startUser(one, "pvc-shared"); c.inPod(one, "rm -f "+file) })
	c.inPod(other, `grep -qx "of one" `+file)

	output, err := c.tryKubectl("", "-n", one, "patch", "sv", "shared", "--type=merge", "-p", `{"spec": {"readOnly": true}}`)
	if err == nil || !strings.Contains(output, "delete and recreate it") {
		c.Errorf("a SharedVolume was changed, %v: %s", err, output)
	}
	c.expectRecreated(one, "pv/pv-"+one+"-shared")
	c.inPod(one, `grep -qx "of one" `+file)
	c.deleteUser(other)
	c.expectRecreated(other, "pvc/pvc-shared")
}

// writerSurvivesAnUpgrade: the product's pods are replaced, and no write fails, which would end the
// writer's container.
func writerSurvivesAnUpgrade(c *cluster) {
	manager, agents := "deployment/efs-manager", "daemonset/efs-stunnel"
	c.requireRights(permission{"patch", manager, c.system}, permission{"patch", agents, c.system})
	ns := c.namespace("upgrade")
	c.apply(ns, claim("data", c.class)+writerSet)
	before := c.waitForWriterLines(ns, 100)
	_, writer := c.writerOf(ns)
	for _, object := range []string{agents, manager} {
		c.kubectl("-n", c.system, "rollout", "restart", object)
		c.kubectl("-n", c.system, "rollout", "status", object, "--timeout="+limit.String())
	}
	during := c.waitForWriterLines(ns, 0)
	all := c.waitForWriterLines(ns, len(during)+100) // old agents hand over after new ones are ready
	c.expectSameWriter(ns, writer)
	c.found.Notes = append(c.found.Notes, fmt.Sprintf("longest pause of the writer %.2f s, undisturbed %.2f s",
		longestPause(all, len(before)).Seconds(), longestPause(before, 0).Seconds()))
	c.apply(ns, claim("later", c.class))
	c.waitForVolume(ns, "later")
}

// drainedWriterContinuesElsewhere: it finds its lines on the other node, and continues.
func drainedWriterContinuesElsewhere(c *cluster) {
	c.requireAnotherNode()
	c.requireRights(permission{"patch", "nodes", ""}, permission{"create", "pods --subresource=eviction", ""})
	ns := c.namespace("drain")
	c.apply(ns, claim("data", c.class)+writerSet)
	c.waitForWriterLines(ns, 10)
	node, _ := c.writerOf(ns)
	c.drain(node, ns)
	c.kubectl("-n", ns, "rollout", "status", "statefulset/scribe", "--timeout="+limit.String())
	c.waitForWriterLines(ns, len(c.waitForWriterLines(ns, 0))+10)
	if now, _ := c.writerOf(ns); now == node {
		c.Errorf("the writer is still on %s", node)
	}
}

// drain evicts the pods of a node, or only the writer, and keeps others off the node until the end of the
// scenario. The label is for the next run, if this one is killed.
func (c *cluster) drain(node, namespace string) {
	c.Helper()
	c.Cleanup(func() { c.uncordon(node) })
	c.kubectl("label", "node", node, runLabel+"="+c.derived)
	if c.drainsNodes {
		c.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+limit.String())
		return
	}
	c.kubectl("cordon", node)
	c.evict(namespace, "scribe-0")
	c.wait(namespace, "delete", "pod/scribe-0")
}

func (c *cluster) uncordon(node string) {
	c.Helper()
	c.kubectl("uncordon", node)
	c.kubectl("label", "node", node, runLabel+"-")
}
