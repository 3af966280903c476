//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

// fullDiskStopsNothing: while a node's disk has no free byte, stunnel is restarted, and a pod continues
// to write to its volume. The kubelet evicts all but critical pods from the node.
func fullDiskStopsNothing(l *lab) {
	ns := l.namespace("full")
	const critical = "    spec:\n      priorityClassName: system-node-critical\n"
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+strings.Replace(writerSet, "    spec:\n", critical, 1))
	data := l.waitForClaim(ns, "data")
	data.waitForLines(1)
	node, writer := l.writerOf(ns)
	pressure := func(status string) {
		l.kubectl("wait", "--for=condition=DiskPressure="+status, "node/"+node, "--timeout="+limit.String())
	}
	free := func() { l.onNode(node, "rm -f /full-*") }
	l.Cleanup(free)
	data.logPause("the node's disk becomes full", func() {
		l.onNode(node, fillDisk)
		pressure("True")
	})
	data.logPause("stunnel killed on a full disk", func() { l.onNode(node, fillDisk+killOnFullDisk) })
	free()
	l.expectSameWriter(ns, writer)
	pressure("False") // the kubelet waits for some minutes
	l.waitForAgents()
	l.kubectl("-n", ns, "delete", "statefulset", "scribe", "--cascade=foreground", "--timeout="+limit.String())
}

const (
	// fillDisk fills the disk, root's reserve included: most of it without writing, then the rest. It is
	// run twice, because the kubelet removes images.
	fillDisk = `name=/full-$(tr -d ' .' < /proc/uptime)
		free=$(stat -f -c '%f' /) size=$(stat -f -c '%S' /)
		fallocate -l $((free * size / 100 * 99)) $name-most
		dd if=/dev/zero of=$name-rest bs=64k 2> /dev/null
		dd if=/dev/zero of=$name-last bs=1k 2> /dev/null
		sync
		`
	// killOnFullDisk fails on a disk that is not full, and is then repeated.
	killOnFullDisk = `echo more > $name-more && exit 1
		pkill -KILL -x stunnel`
)

const (
	// leftMemory stays free of a node's memory, in MiB. Each flood is twice that.
	leftMemory = 400
	// hogMemory takes the rest, and lets nearly all that is left be dirty before a writer has to wait.
	hogMemory = `set -e
		mkdir -p /run/hog && { mountpoint -q /run/hog || mount -t tmpfs -o size=100%% hog /run/hog; }
		sysctl -qw vm.dirty_background_ratio=80 vm.dirty_ratio=90
		free=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024))
		[ "$free" -le %[1]d ] || dd if=/dev/zero of=/run/hog/$free bs=1M count=$((free - %[1]d)) 2> /dev/null`
	freeMemory = `sysctl -qw vm.dirty_background_ratio=10 vm.dirty_ratio=20; ! mountpoint -q /run/hog || umount /run/hog`
	// turnOnRealtime is the component's other half.
	turnOnRealtime = `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--realtime"}]`
	// flood returns at once. Its last file is there when all of it is on the server.
	flood = `(dd if=/dev/zero of=/data/flood-%[1]d bs=1M count=%[2]d && sync && touch /data/drained-%[1]d) > /dev/null 2>&1 &`
)

// fullMemoryDrains: a node's memory is full of data that only stunnel can write, also while stunnel is started again.
// If stunnel or the supervisor waited for memory, nothing would ever be free: they do without the component realtime.
func fullMemoryDrains(l *lab) {
	l.restoreAgentsAtTheEnd()
	l.kubectl("-n", system, "patch", "daemonset", "efs-stunnel", "--patch-file", "deploy/kustomize/components/realtime/agent.yaml")
	l.kubectl("-n", system, "patch", "daemonset", "efs-stunnel", "--type=json", "--patch", turnOnRealtime)
	l.waitForRollout()
	ns := l.namespace("memory")
	critical := strings.Replace(pod("persistentVolumeClaim: {claimName: data}", ""), "spec:\n", "spec:\n  priorityClassName: system-node-critical\n", 1)
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+critical)
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/user")
	node := l.kubectl("-n", ns, "get", "pod", "user", "-o", "jsonpath={.spec.nodeName}")
	before := l.restarts()
	l.Cleanup(func() { l.onNode(node, freeMemory) })
	for run := range times(1, 10) {
		l.onNode(node, fmt.Sprintf(hogMemory, leftMemory))
		l.inPod(ns, fmt.Sprintf(flood, run, 2*leftMemory))
		if run%2 == 1 {
			data.waitForFlood(run, leftMemory/4)
			l.onNode(node, "pkill -KILL -x stunnel")
		}
		data.waitForFile(fmt.Sprintf("drained-%d", run), "")
		data.waitForFlood(run, 2*leftMemory)
		l.inPod(ns, fmt.Sprintf("rm -f /data/flood-%d", run))
	}
	if now := l.restarts(); !slices.Equal(now, before) {
		l.Errorf("containers were restarted: %s, before %s", now, before)
	}
}

// waitForFlood waits until the server has stored so many MiB of a flood. A write that was lost would leave a hole.
func (d directory) waitForFlood(run, size int) {
	d.lab.Helper()
	d.lab.eventually(fmt.Sprintf("%d MiB of flood %d", size, run), func() string {
		info, err := os.Stat(d.file(fmt.Sprintf("flood-%d", run)))
		if err != nil {
			return err.Error()
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			d.lab.Fatalf("%s has no number of blocks", info.Name())
		}
		if stored := min(info.Size(), stat.Blocks*512); stored < int64(size)<<20 {
			return fmt.Sprintf("there are %d, of a file of %d", stored>>20, info.Size()>>20)
		}
		return ""
	})
}

// Settings of manyTargetsCostLittle.
const (
	manyTargets   = 300
	manyFirstPort = 21100 // in the tunnels' range, and above the ports of the lab's file systems
	usedTargets   = 2
	// maxMemory of supervisor and stunnels together.
	maxMemory = 40 << 20
)

// manyTargetsCostLittle: a node with hundreds of targets that uses two of them runs two stunnel
// processes. The test writes the table, so that no manager starts Jobs for the targets.
func manyTargetsCostLittle(l *lab) {
	const node = "node-1"
	good := l.table()
	l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=0")
	l.Cleanup(func() {
		l.disconnect(node)
		l.putTable(good)
		l.kubectl("-n", system, "scale", "deployment/efs-manager", "--replicas=2")
		l.kubectl("-n", system, "rollout", "status", "deployment/efs-manager", "--timeout="+limit.String())
		l.waitForTunnels(node, 0)
	})
	l.wait(system, "delete", "pod", "-l", "app.kubernetes.io/component=manager")
	before := l.supervisorMemory(node)
	l.putTable(l.withManyTargets(good))
	l.waitForTunnels(node, manyTargets)
	var used []int
	for i := range usedTargets {
		used = append(used, manyFirstPort+i)
	}
	l.connect(node, used...)
	l.eventually("stunnel to run for each target that is used", func() string {
		if got := l.onNode(node, "pgrep -xa stunnel | grep -cF many- || true"); got != strconv.Itoa(usedTargets) {
			return fmt.Sprintf("%s run, want %d", got, usedTargets)
		}
		return ""
	})
	after := l.supervisorMemory(node)
	l.Logf("MEMORY of the supervisor's container, with %s stunnel processes in all: %d KiB, before the %d targets %d KiB",
		l.onNode(node, "pgrep -xc stunnel"), after>>10, manyTargets, before>>10)
	if after > maxMemory {
		l.Errorf("the supervisor's container has %d KiB, want %d at most", after>>10, maxMemory>>10)
	}
}

// waitForTunnels waits until a node serves so many of the test's targets.
func (l *lab) waitForTunnels(node string, number int) {
	l.Helper()
	l.eventually(fmt.Sprintf("%s to serve %d targets", node, number), func() string {
		lines := l.agentMetrics(node, `efs_stunnel_node_tunnel_listening{tunnel="many-.* 1$`)
		if got := strings.Count(lines, "many-"); got != number {
			return fmt.Sprintf("it serves %d", got)
		}
		return ""
	})
}

// supervisorMemory returns the working set of a node's supervisor and its stunnels.
func (l *lab) supervisorMemory(node string) (bytes int) {
	l.Helper()
	output := l.onNode(node, `group=/sys/fs/cgroup$(cut -d : -f 3 "/proc/$(`+supervisorOf+`)/cgroup")
		grep -E '^(anon|file|shmem|kernel|inactive_file) ' "$group/memory.stat" >&2
		echo $(($(cat "$group/memory.current") - $(sed -n 's/^inactive_file //p' "$group/memory.stat")))`)
	bytes, err := strconv.Atoi(output)
	if err != nil {
		l.Fatalf("memory of the supervisor is %q: %v", output, err)
	}
	return bytes
}

// withManyTargets adds targets with the addresses of one file system to a table.
func (l *lab) withManyTargets(table string) string {
	l.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(table), &content); err != nil {
		l.Fatal(err)
	}
	targets, ok := content["efs_stunnel_targets"].(map[string]any)
	if !ok {
		l.Fatalf("the table has no targets:\n%s", table)
	}
	near, far := l.mountTargets(shared, "node-1")
	for i := range manyTargets {
		targets[fmt.Sprintf("many-%03d", i)] = map[string]any{
			"stunnel_port":            manyFirstPort + i,
			"dns_name":                shared + ".efs.us-east-1.amazonaws.com",
			"mount_target_ip_by_zone": map[string]string{near.Zone: near.Address, far.Zone: far.Address},
		}
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		l.Fatal(err)
	}
	return string(text)
}
