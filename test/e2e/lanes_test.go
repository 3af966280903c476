//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// turnOnLanes is the patch of docs/tasks/lanes.md.
	turnOnLanes = `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--lanes=5"}]`
	lanes       = 5
	// laneRate limits what a mount target of the lab sends over each connection in a second: less than an emulated node can
	// decrypt by a multiple.
	laneRate = 1 << 20
	// killLane breaks one of the connections of a mount, with which its lane ends.
	killLane = `port=$(ss -Htn state established dst %[1]s dport = :2049 | shuf -n 1 | awk '{print $3}' | sed 's/.*://')
		[ -z "$port" ] || ss -Ktn dst %[1]s dport = :2049 sport = :$port > /dev/null`
)

// lanesCarryMounts: with the mounts of both nodes on five connections each to a server with partitions, a mount is as many
// times as fast, files stay right while connections are lost, the writer pauses no longer than with one, and no request
// comes to a wrong partition.
func lanesCarryMounts(l *lab) {
	ns := l.namespace("lanes")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+writerSet+readerPod)
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/listener")
	node, writer := l.writerOf(ns)
	volume := l.kubectl("-n", ns, "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
	reader := l.kubectl("-n", ns, "get", "pod", "listener", "-o", "jsonpath={.spec.nodeName}")

	l.serveInPartitions()
	one := l.readingRate(reader, volume, 4)
	l.restoreAgentsAtTheEnd()
	l.kubectl("-n", system, "patch", "daemonset", "efs-stunnel", "--type=json", "--patch", turnOnLanes)
	l.waitForRollout()
	l.readingRate(reader, volume, 16) // lanes are added to a mount that is busy for seconds
	all := l.readingRate(reader, volume, 32)
	l.Logf("LANES %.2f MB/s with one connection, %.2f MB/s with %d: %.2f times as fast", one/1e6, all/1e6, lanes, all/one)
	if all < 4.5*one {
		l.Errorf("%d connections are less than 4.5 times as fast as one", lanes)
	}
	l.waitForLanes(reader, lanes)

	w := data.writer(node)
	w.measureUndisturbed(time.Minute)
	w.processesDie()
	l.expectSameWriter(ns, writer)
	data.waitForReader(ns)
	l.kubectl("-n", ns, "delete", "statefulsets,pods", "--all", "--timeout="+limit.String())

	p := l.newHistory()
	p.play("nothing, with lanes", func() {})
	l.waitForLanes("node-1", lanes)
	l.waitForLanes("node-2", lanes)
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
		for _, node := range []string{"node-1", "node-2"} {
			p.play("a lane killed every second on "+node, func() { l.killLanes(node, 20) })
			p.play("stunnel killed on "+node, func() { l.onNode(node, "pkill -KILL -x stunnel") })
		}
	}
	p.finish(5000)
	if wrong := l.requestsInWrongPartitions(); wrong > 0 {
		l.Errorf("%d connections carried requests to a wrong partition", wrong)
	}
}

// serveInPartitions has the mount targets of the shared file system tell clients their partitions, from any rate on.
func (l *lab) serveInPartitions() {
	l.Helper()
	near, far := l.mountTargets(shared, "node-1")
	for _, target := range []mountTarget{near, far} {
		l.lab("efs", "update-mount-target", target.ID, "--partitions=3", "--partition-rate=1000")
		l.Cleanup(func() { l.lab("efs", "update-mount-target", target.ID, "--partitions=0") })
	}
}

// readingRate returns the bytes per second that a node reads of a volume, from a mount target that limits each connection.
// Each of the readers reads as many MiB. With several lanes, some are idle in the last seconds, which must be few of all.
func (l *lab) readingRate(node, volume string, mebibytes int) float64 {
	l.Helper()
	const readers, longest = 10, 32
	target, _ := l.mountTargets(shared, node)
	l.lab("efs", "update-mount-target", target.ID, "--rate="+strconv.Itoa(laneRate))
	defer l.lab("efs", "update-mount-target", target.ID, "--rate=0")
	out := l.onVolume(node, volume, fmt.Sprintf(`
		[ -e big ] || dd if=/dev/zero of=big bs=1M count=%[1]d conv=fsync status=none
		begin=$(date +%%s%%N)
		for i in $(seq 0 %[2]d); do dd if=big of=/dev/null iflag=direct bs=1M skip=$((i * %[3]d)) count=%[3]d status=none & done
		wait
		echo $(($(date +%%s%%N) - begin))`, readers*longest, readers-1, mebibytes))
	took, err := strconv.Atoi(out)
	if err != nil {
		l.Fatalf("reading printed %q: %v", out, err)
	}
	return float64(readers*mebibytes<<20) / time.Duration(took).Seconds()
}

// waitForLanes of the shared file system, as the node's agent says, which has a connection of its own beside the mounts.
func (l *lab) waitForLanes(node string, number int) {
	l.Helper()
	const path = `jsonpath={.status.tunnels[?(@.name=="` + shared + `")].lanes}`
	l.eventually(fmt.Sprintf("%s to have %d lanes for a mount", node, number), func() string {
		got := l.kubectl("get", "efsnode", node, "-o", path)
		if open, err := strconv.Atoi(got); err != nil || open <= number {
			return "it has " + got
		}
		return ""
	})
}

// killLanes of the shared file system, one in a second.
func (l *lab) killLanes(node string, seconds int) {
	l.Helper()
	target, _ := l.mountTargets(shared, node)
	address, _, _ := strings.Cut(target.Address, ",") // of each family
	l.onNode(node, fmt.Sprintf("for i in $(seq %[2]d); do "+killLane+"; sleep 1; done", address, seconds))
}

// restoreAgentsAtTheEnd has the agents' pods be as they are now, whatever is patched. To undo a rollout would undo the
// latest of several patches.
func (l *lab) restoreAgentsAtTheEnd() {
	template := l.kubectl("-n", system, "get", "daemonset", "efs-stunnel", "-o", "jsonpath={.spec.template}")
	l.Cleanup(func() {
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/template", "value": %s}]`, template)
		l.kubectl("-n", system, "patch", "daemonset", "efs-stunnel", "--type=json", "--patch", patch)
		l.waitForRollout()
	})
}

func (l *lab) waitForRollout() {
	l.Helper()
	l.kubectl("-n", system, "rollout", "status", "daemonset/efs-stunnel", "--timeout="+limit.String())
	l.waitForAgents()
}

func (l *lab) requestsInWrongPartitions() (count int) {
	l.Helper()
	var status struct{ MountTargets []struct{ Wrong int } }
	if err := json.Unmarshal([]byte(l.lab("efs", "status", "-o", "json")), &status); err != nil {
		l.Fatal(err)
	}
	for _, target := range status.MountTargets {
		count += target.Wrong
	}
	return count
}
