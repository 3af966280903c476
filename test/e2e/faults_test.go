//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
)

const system = "efs-stunnel" // the namespace of the product

// rootVolumeComesBack: without its claim no mount Job can run.
func rootVolumeComesBack(l *lab) {
	ns := l.namespace("root")
	root := "pvc/efs-stunnel-" + shared
	uid := l.kubectl("-n", system, "get", root, "-o", "jsonpath={.metadata.uid}")
	l.kubectl("-n", system, "delete", root, "--wait=false")
	l.awaitBound(system, root, uid)
	l.apply(ns, claim("data", class, "file_system_id: "+shared))
	l.claimed(ns, "data")
}

// awaitBound waits until a claim or volume that was deleted has a successor that is bound.
func (l *lab) awaitBound(namespace, object, deleted string) {
	l.Helper()
	l.eventually("another "+object, func() string {
		now, err := l.try("", "bin/lab", "kubectl", "--", "-n", namespace, "get", object, "-o", "jsonpath={.metadata.uid} {.status.phase}")
		if err != nil || strings.HasPrefix(now, deleted) || !strings.HasSuffix(now, " Bound") {
			return "there is " + now
		}
		return ""
	})
}

// burstSurvivesItsLeader: no claim is lost, none is provisioned twice, and a mount Job serves many.
func burstSurvivesItsLeader(l *lab) {
	size := times(20, 200)
	ns := l.namespace("burst")
	jobs := l.setupJobsOf(ns)
	var claims strings.Builder
	for i := range size {
		claims.WriteString(claim("data-"+strconv.Itoa(i), class))
	}
	l.apply(ns, claims.String())
	holder := l.leaseHolder()
	leader, _, _ := strings.Cut(holder, "_")
	l.kubectl("-n", system, "delete", "pod", leader, "--grace-period=0", "--force", "--ignore-not-found")
	l.wait(ns, "jsonpath={.status.phase}=Bound", "pvc", "--all")

	volumes := l.directories(ns)
	if len(volumes) != size {
		l.Errorf("%d volumes for %d claims", len(volumes), size)
	}
	var paths []string
	for _, data := range volumes {
		paths = append(paths, data.fileSystem+data.path)
		if diff := cmp.Diff([]string{data.volume}, data.owners()); diff != "" {
			l.Errorf("owners of %s mismatch (-want +got):\n%s", data.path, diff)
		}
	}
	slices.Sort(paths)
	if distinct := len(slices.Compact(paths)); distinct != len(volumes) {
		l.Errorf("%d directories for %d volumes", distinct, len(volumes))
	}
	if jobs = l.setupJobsOf(ns) - jobs; jobs > mostSetupJobs(size) {
		l.Errorf("%d mount Jobs for %d claims, want %d at most", jobs, size, mostSetupJobs(size))
	}
	l.eventually("another leader", func() string { // the old one may have been done before its kubelet heard
		if l.leaseHolder() == holder {
			return leader + " still leads"
		}
		return ""
	})
	l.kubectl("-n", system, "rollout", "status", "deployment/efs-manager", "--timeout="+limit.String())
}

// mostSetupJobs is how many mount Jobs a burst of claims may take. A file system has one mount Job at a
// time, which carries all operations that wait when it is created, up to its batch. So on each file
// system the first Job has what the leader has seen of the burst by then, and the next ones the rest.
// There are some more for claims that are created while those run, for the next leader, and for Jobs
// that fail on a busy node.
func mostSetupJobs(claims int) int {
	const fileSystems, batch = 2, 512
	return fileSystems * (1 + (claims+batch-1)/batch + times(3, 6))
}

// setupJobsOf counts the mount Jobs with operations for claims of a namespace. Jobs stay for an hour.
func (l *lab) setupJobsOf(namespace string) (count int) {
	l.Helper()
	operations := l.kubectl("-n", system, "get", "jobs", "-l", "app.kubernetes.io/component=mount-job",
		"-o", `jsonpath={range .items[*]}{.metadata.annotations.efs-stunnel\.gnuthought\.com/operations}{"\n"}{end}`)
	for line := range strings.Lines(operations) {
		if strings.Contains(line, `"ns":"`+namespace+`"`) {
			count++
		}
	}
	return count
}

func (l *lab) leaseHolder() string {
	l.Helper()
	return l.kubectl("-n", system, "get", "lease", "efs-manager", "-o", "jsonpath={.spec.holderIdentity}")
}

// fileSystemComesLater, is used without a restart of anything, and goes with all that was made
// for it.
func fileSystemComesLater(l *lab) {
	ns := l.namespace("later")
	restarts := l.restarts()
	fileSystem := l.newFileSystem("later")
	l.apply(ns, claim("data", class, "file_system_id: "+fileSystem)+pod("persistentVolumeClaim: {claimName: data}", ""))
	data := l.claimed(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo later > /data/file")
	data.want("file", "later\n")
	if now := l.restarts(); now != restarts {
		l.Errorf("containers were restarted: %s, before %s", now, restarts)
	}

	l.kubectl("-n", ns, "delete", "pod", "user")
	l.kubectl("-n", ns, "delete", "pvc", "data")
	l.wait(ns, "delete", "pv/"+data.volume)
	data.wantGone()
	l.deleteFileSystem(fileSystem)
}

// newFileSystem makes one with a mount target in each zone.
func (l *lab) newFileSystem(name string) (id string) {
	l.Helper()
	id = strings.TrimSpace(l.lab("efs", "create-file-system", "--fs-name", name))
	l.makeMountTargets(id, "us-east-1a", "us-east-1b")
	return id
}

func (l *lab) makeMountTargets(fileSystem string, zones ...string) {
	l.Helper()
	for _, zone := range zones {
		l.lab("efs", "create-mount-target", "--file-system", fileSystem, "--zone", zone)
	}
}

// deleteFileSystem deletes one that nobody uses any more, and waits until what was made for it has
// gone, too. A mount of a file system that is gone hangs until its tunnel ends, and minutes longer.
func (l *lab) deleteFileSystem(id string) {
	l.Helper()
	l.awaitUnused(id)
	l.lab("efs", "delete-file-system", id, "--cascade")
	l.wait(system, "delete", "pvc/efs-stunnel-"+id, "pv/efs-stunnel-"+id)
}

// awaitUnused waits until no Job is under way on a target, and no node has its root mounted.
func (l *lab) awaitUnused(id string) {
	l.Helper()
	l.eventually("its Jobs to end", func() string {
		return l.kubectl("-n", system, "get", "jobs", "-l", "efs-stunnel.gnuthought.com/file-system-id="+id,
			"-o", `jsonpath={range .items[?(@.status.active)]}{.metadata.name} {end}`)
	})
	for _, node := range []string{"node-1", "node-2"} {
		l.eventually(node+" to unmount "+id, func() string {
			return l.onNode(node, "grep -F kubernetes.io~nfs/efs-stunnel-"+id+" /proc/mounts || true")
		})
	}
}

// restarts are those of every container on the nodes; a manager may lose its Lease on a busy host.
func (l *lab) restarts() string {
	l.Helper()
	return l.kubectl("-n", system, "get", "pods", "-l", "app.kubernetes.io/component=node-agent", "--sort-by=.metadata.name",
		"-o", `jsonpath={range .items[*]}{.metadata.name}{.status.containerStatuses[*].restartCount} {end}`)
}

// tableComesBack with the same ports, which volumes and the root claims remember.
func tableComesBack(l *lab) {
	ns := l.namespace("rebuilt")
	targets := func() string {
		text, _, _ := strings.Cut(l.table(), "last_update:")
		return text
	}
	want := targets()
	l.kubectl("-n", system, "delete", "configmap", "efs-stunnel")
	l.eventually("the same targets", func() string { return cmp.Diff(want, targets()) })
	l.apply(ns, claim("data", class, "file_system_id: "+shared))
	l.claimed(ns, "data")
}

// brokenTableIsServedOn, and reported by the manager and by each node. What is reported again adds to
// the event that there is.
func (w *writing) brokenTableIsServedOn(ns string) {
	l := w.lab
	l.Helper()
	good, leader := l.table(), l.leaseHolder()
	l.Cleanup(func() { l.putTable(good) })
	// Who has just said a sentence does not say it again, but adds to the event of an earlier one.
	texts := []string{"targets: [what, is, this", "targets: {what, is, this", "targets: [what, is, this"}
	for round, broken := range texts {
		w.wantPause("table that cannot be read", momentary, func() {
			l.putTable(broken + "\n")
			l.awaitTableEvents(round)
		})
		l.putTable(good)
		name := fmt.Sprintf("later-%d", round)
		l.apply(ns, claim(name, class))
		l.claimed(ns, name)
	}
	messages := len(slices.Compact(slices.Sorted(slices.Values(texts))))
	if events := strings.Count(l.kubectl(tableEvents...), "ConfigMap/"); events != messages && l.leaseHolder() == leader {
		l.Errorf("the manager made %d events of %d messages", events, messages)
	}
}

// awaitTableEvents waits until the manager and each node have reported more often than before.
func (l *lab) awaitTableEvents(before int) {
	l.Helper()
	l.eventually("the manager and each node to report it", func() string {
		counts := l.tableEvents()
		for _, object := range []string{"ConfigMap/efs-stunnel", "Node/node-1", "Node/node-2"} {
			if counts[object] <= before { // a new leader reports again
				return fmt.Sprintf("the counts are %v, want %d", counts, before+1)
			}
		}
		return ""
	})
}

var tableEvents = []string{
	"get", "events", "--all-namespaces", "--field-selector", "reason=TableUnreadable",
	"-o", `jsonpath={range .items[*]}{.involvedObject.kind}/{.involvedObject.name} {.count}{"\n"}{end}`,
}

// tableEvents counts how often was told, of each object, that the table cannot be read.
func (l *lab) tableEvents() map[string]int {
	l.Helper()
	told := map[string]int{}
	for line := range strings.Lines(l.kubectl(tableEvents...)) {
		object, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		times, err := strconv.Atoi(count)
		if err != nil {
			l.Fatalf("%q: %v", line, err)
		}
		told[object] += times
	}
	return told
}

// nodeComesLater with the startup taint, which goes when the agent serves; then pods run. A taint of
// the test's own keeps the pods of others away, as the node goes again.
func nodeComesLater(l *lab) {
	ns := l.namespace("node")
	l.lab("node", "add", "node-3", "--zone", "us-east-1b")
	l.Cleanup(func() {
		l.lab("node", "remove", "node-3")
		l.kubectl("-n", system, "rollout", "status", "daemonset/efs-stunnel", "--timeout="+limit.String())
	})
	l.kubectl("taint", "node", "node-3", startupTaint+"=:NoSchedule", "e2e=alone:NoSchedule")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+pinned("node-3", pod("persistentVolumeClaim: {claimName: data}", "")))
	data := l.claimed(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo new > /data/file")
	data.want("file", "new\n")
	l.awaitStartupTaintGone("node-3")
	l.kubectl("-n", ns, "delete", "pod", "user")
}

// startupTaint keeps pods off a node until its agent serves.
const startupTaint = "efs-stunnel.gnuthought.com/agent-not-ready"

func (l *lab) awaitStartupTaintGone(node string) {
	l.Helper()
	l.eventually("the agent to remove the startup taint of "+node, func() string {
		if taints := l.kubectl("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}"); strings.Contains(taints, startupTaint) {
			return "the node has the taints " + taints
		}
		return ""
	})
}
