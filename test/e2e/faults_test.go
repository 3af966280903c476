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

// deletedRootVolumeIsRecreated: no mount Job can run without its claim.
func deletedRootVolumeIsRecreated(l *lab) {
	ns := l.namespace("root")
	root := "pvc/efs-stunnel-" + shared
	uid := l.kubectl("-n", system, "get", root, "-o", "jsonpath={.metadata.uid}")
	l.kubectl("-n", system, "delete", root, "--wait=false")
	l.waitForSuccessor(system, root, uid)
	l.apply(ns, claim("data", class, "file_system_id: "+shared))
	l.waitForClaim(ns, "data")
}

// burstSurvivesItsLeader: no claim is lost or provisioned twice, and a mount Job serves many.
func burstSurvivesItsLeader(l *lab) {
	size := times(20, 200)
	ns := l.namespace("burst")
	jobs := l.setupJobsOf(ns)
	l.apply(ns, claim("first", class)) // so that the leader dies while a worker waits
	l.waitForClaim(ns, "first")
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
	if len(volumes) != size+1 {
		l.Errorf("%d volumes for %d claims", len(volumes), size+1)
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
	if jobs = l.setupJobsOf(ns) - jobs; jobs > maxSetupJobs(size) {
		l.Errorf("%d mount Jobs for %d claims, want %d at most", jobs, size, maxSetupJobs(size))
	}
	l.eventually("another leader", func() string { // the old one may have finished the burst before its kubelet killed it
		if l.leaseHolder() == holder {
			return leader + " still leads"
		}
		return ""
	})
	l.kubectl("-n", system, "rollout", "status", "deployment/efs-manager", "--timeout="+limit.String())
}

// maxSetupJobs returns the most mount Jobs that a burst of claims may take. A file system has one mount Job at a
// time, which carries all operations that wait when it is created, up to its batch. So on each file system the
// first Job has the claims that the leader has observed by then, and the next ones the rest. Some more are for
// claims that are created meanwhile, for the next leader, and for Jobs that fail on a busy node.
func maxSetupJobs(claims int) int {
	const fileSystems, batch = 2, 512
	return fileSystems * (1 + (claims+batch-1)/batch + times(3, 6))
}

// setupJobsOf counts the mount Jobs with operations for claims of a namespace. Jobs stay for an hour, but
// the operations that a worker was given later only until they are used.
func (l *lab) setupJobsOf(namespace string) (count int) {
	l.Helper()
	operations := l.kubectl("-n", system, "get", "jobs", "-l", "app.kubernetes.io/component=mount-job",
		"-o", `jsonpath={range .items[*]}{.metadata.annotations}{"\n"}{end}`)
	for line := range strings.Lines(operations) {
		if strings.Contains(line, `\"ns\":\"`+namespace+`\"`) {
			count++
		}
	}
	return count
}

// claimsShareOneJob: the pod of a mount Job waits for more operations, and whoever reads its log and labels
// knows what was done. It may have operations of other scenarios' claims, too.
func claimsShareOneJob(l *lab) {
	ns := l.namespace("stream")
	before := l.mountJobsOf(shared)
	const claims = 10
	for i := range claims {
		name := "data-" + strconv.Itoa(i)
		l.apply(ns, claim(name, class, "file_system_id: "+shared))
		l.waitForClaim(ns, name)
	}
	added := slices.DeleteFunc(l.mountJobsOf(shared), func(job string) bool { return slices.Contains(before, job) })
	log, unreached := "", 0
	for _, job := range l.mountJobsOf(shared) {
		text := l.kubectl("-n", system, "logs", "job/"+job)
		log += text
		if slices.Contains(added, job) && strings.Contains(text, "the leader cannot be reached") {
			unreached++
		}
	}
	// A worker waits no longer when half of its Job's time is over. One that does not reach its leader for a
	// second, on a machine without a processor for either, ends, too.
	if len(added) > min(2+unreached, claims/2) {
		l.Errorf("%d claims took the mount Jobs %q, of which %d did not reach their leader", claims, added, unreached)
	}
	for i := range claims {
		if want := fmt.Sprintf("volume=%s claim=%s/data-%d duration=", l.waitForClaim(ns, fmt.Sprintf("data-%d", i)).volume, ns, i); !strings.Contains(log, want) {
			l.Errorf("no log of a mount Job has %q:\n%s", want, log)
		}
	}
	l.kubectl("-n", ns, "delete", "pvc", "--all", "--timeout="+limit.String())
}

// mountJobsOf names the mount Jobs of a file system.
func (l *lab) mountJobsOf(fileSystem string) []string {
	l.Helper()
	return strings.Fields(l.kubectl("-n", system, "get", "jobs", "-o", "jsonpath={.items[*].metadata.name}",
		"-l", "app.kubernetes.io/component=mount-job,efs-stunnel.gnuthought.com/file-system-id="+fileSystem))
}

func (l *lab) leaseHolder() string {
	l.Helper()
	return l.kubectl("-n", system, "get", "lease", "efs-manager", "-o", "jsonpath={.spec.holderIdentity}")
}

// fileSystemIsAddedLater: it is used without a restart of any container, and all that was made for it is
// deleted with it.
func fileSystemIsAddedLater(l *lab) {
	ns := l.namespace("later")
	restarts := l.restarts()
	fileSystem := l.newFileSystem("later")
	l.claimComesAndGoes(ns, "later", "file_system_id: "+fileSystem)
	for _, now := range l.restarts() { // a pod of a node that was removed before may be gone by now
		if !slices.Contains(restarts, now) {
			l.Errorf("containers were restarted: %s, before %s", now, restarts)
		}
	}
	l.deleteFileSystem(fileSystem)
}

// newFileSystem makes a file system with a mount target in each zone.
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

// deleteFileSystem deletes an unused file system, and waits until its root volume is deleted, too. A
// mount of a deleted file system would hang until its tunnel ends, and minutes longer.
func (l *lab) deleteFileSystem(id string) {
	l.Helper()
	l.waitForUnused(id)
	l.lab("efs", "delete-file-system", id, "--cascade")
	l.wait(system, "delete", "pvc/efs-stunnel-"+id, "pv/efs-stunnel-"+id)
}

// waitForUnused waits until no Job of a target runs, and no node has its root mounted.
func (l *lab) waitForUnused(id string) {
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

// restarts returns the restarts of the node agents' containers, by pod; a manager may lose its Lease on a busy
// host.
func (l *lab) restarts() []string {
	l.Helper()
	return strings.Fields(l.kubectl("-n", system, "get", "pods", "-l", "app.kubernetes.io/component=node-agent", "--sort-by=.metadata.name",
		"-o", `jsonpath={range .items[*]}{.metadata.name}{range .status.containerStatuses[*]}:{.restartCount}{end} {end}`))
}

// deletedTableIsRebuilt with the same ports, which volumes and root volumes name.
func deletedTableIsRebuilt(l *lab) {
	ns := l.namespace("rebuilt")
	targets := func() string {
		text, _, _ := strings.Cut(l.table(), "last_update:")
		return text
	}
	want := targets()
	l.kubectl("-n", system, "delete", "configmap", "efs-stunnel")
	l.eventually("the same targets", func() string { return cmp.Diff(want, targets()) })
	l.apply(ns, claim("data", class, "file_system_id: "+shared))
	l.waitForClaim(ns, "data")
}

// tunnelsSurviveABrokenTable: the manager and each node report it. A repeated report adds to the count of
// the first event.
func (w *writer) tunnelsSurviveABrokenTable(ns string) {
	l := w.lab
	l.Helper()
	good, leader := l.table(), l.leaseHolder()
	l.Cleanup(func() { l.putTable(good) })
	l.kubectl("delete", "events", "--all-namespaces", "--field-selector", "reason=TableUnreadable") // of other scenarios
	// A message that was reported just now is not reported again, so two messages alternate.
	texts := []string{"targets: [what, is, this", "targets: {what, is, this", "targets: [what, is, this"}[:times(1, 3)]
	for round, broken := range texts {
		w.expectPause("table that cannot be read", momentary, func() {
			l.putTable(broken + "\n")
			l.waitForTableEvents(round)
		})
		l.putTable(good)
		name := fmt.Sprintf("later-%d", round)
		l.apply(ns, claim(name, class))
		l.waitForClaim(ns, name)
	}
	messages := len(slices.Compact(slices.Sorted(slices.Values(texts))))
	if events := strings.Count(l.kubectl(tableEvents...), "ConfigMap/"); events != messages && l.leaseHolder() == leader {
		l.Errorf("the manager made %d events of %d messages", events, messages)
	}
}

// waitForTableEvents waits until the manager and each node have reported more often than before.
func (l *lab) waitForTableEvents(before int) {
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

// tableEvents counts the reports of an unreadable table, by object.
func (l *lab) tableEvents() map[string]int {
	l.Helper()
	counts := map[string]int{}
	for line := range strings.Lines(l.kubectl(tableEvents...)) {
		object, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		times, err := strconv.Atoi(count)
		if err != nil {
			l.Fatalf("%q: %v", line, err)
		}
		counts[object] += times
	}
	return counts
}

// nodeIsAddedLater: its startup taint is removed when the agent is ready, and then pods run. A taint of
// the test keeps other pods away, because the node is removed again.
func nodeIsAddedLater(l *lab) {
	ns := l.namespace("node")
	l.lab("node", "add", "node-3", "--zone", "us-east-1b")
	l.Cleanup(func() {
		l.lab("node", "remove", "node-3")
		l.kubectl("-n", system, "rollout", "status", "daemonset/efs-stunnel", "--timeout="+limit.String())
	})
	l.kubectl("taint", "node", "node-3", startupTaint+"=:NoSchedule", "e2e=alone:NoSchedule")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+pinned("node-3", pod("persistentVolumeClaim: {claimName: data}", "")))
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	l.inPod(ns, "echo new > /data/file")
	data.expectFile("file", "new\n")
	l.waitForStartupTaintRemoved("node-3")
	l.kubectl("-n", ns, "delete", "pod", "user")
}

// startupTaint keeps pods off a node until its agent is ready.
const startupTaint = "efs-stunnel.gnuthought.com/agent-not-ready"

func (l *lab) waitForStartupTaintRemoved(node string) {
	l.Helper()
	l.eventually("the agent to remove the startup taint of "+node, func() string {
		if taints := l.kubectl("get", "node", node, "-o", "jsonpath={.spec.taints[*].key}"); strings.Contains(taints, startupTaint) {
			return "the node has the taints " + taints
		}
		return ""
	})
}
