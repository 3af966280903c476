//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
)

// faultsAreNotNoticed: whatever dies between the kernel's NFS client and the server, every line
// arrives once and in order, and no write fails. How long writing paused is printed.
func faultsAreNotNoticed(l *lab) {
	ns := l.namespace("faults")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+scribe+listener)
	data := l.claimed(ns, "data")
	l.wait(ns, "condition=Ready", "pod/listener")
	data.awaitLines(1)
	node, writer := l.scribeOf(ns)
	near, far := l.mountTargets(shared, node)
	set := func(target mountTarget, mode string) { l.lab("efs", "update-mount-target", target.ID, "--mode", mode) }
	l.Cleanup(func() { set(near, "ok"); set(far, "ok") })

	data.wantLines("at first", func() {})
	for i := range 20 {
		data.wantLines(fmt.Sprintf("stunnel killed, %d", i+1), func() { l.onNode(node, "pkill -KILL -x stunnel") })
	}
	for i := range 3 {
		data.wantLines(fmt.Sprintf("agent killed, %d", i+1), func() { l.onNode(node, "pkill -KILL -x nodeagent") })
		l.awaitAgent(node)
	}
	data.wantLines("agent out of memory", func() { l.starve(node) })
	l.awaitAgent(node)
	data.wantLines("supervisor killed", func() { l.onNode(node, "pkill -KILL -x nodeagent-super") })
	data.wantLines("table rewritten 50 times", func() { l.rewriteTable(50) })
	data.wantLines("mount target refuses", func() { set(near, "refuse") })
	data.wantLines("the other one refuses, the first serves", func() { set(near, "ok"); set(far, "refuse") })
	set(far, "ok")
	data.wantLines("mount target resets connections", func() { set(near, "reset") })
	set(near, "ok")
	data.wantLines("mount target is dark", func() { set(near, "drop"); set(far, "ok") })
	data.wantLines("the other one is dark, the first serves", func() { set(near, "ok"); set(far, "drop") })
	set(far, "ok")
	data.wantLines("mount target is silent", func() { set(near, "silent") })
	set(near, "ok")

	l.wantSame(ns, writer)
	written := data.lines()
	l.eventually("the reader on the other node to have every line", func() string {
		log, err := l.heard(ns, "listener")
		if err != nil {
			return err.Error()
		}
		heard := strings.Split(log, "\n")
		for i := range min(len(heard), len(written)) {
			if heard[i] != written[i].text {
				l.Fatalf("line %d is %q to the reader, and %q on the server", i+1, heard[i], written[i].text)
			}
		}
		if len(heard) < len(written) {
			return fmt.Sprintf("it has %d of %d", len(heard), len(written))
		}
		return ""
	})
}

// starve leaves a node's agent less memory than it has, and waits until the kernel has killed it.
func (l *lab) starve(node string) {
	l.Helper()
	before := l.onNode(node, "pgrep -x nodeagent")
	l.onNode(node, `echo 1M > "/sys/fs/cgroup$(cut -d : -f 3 "/proc/$(pgrep -x nodeagent)/cgroup")/memory.max"`)
	l.eventually("the kernel to kill the agent", func() string {
		if l.onNode(node, "pgrep -x nodeagent || true") == before {
			return "it lives"
		}
		return ""
	})
}

// awaitAgent waits until a node has an agent, which the kubelet starts again ever later.
func (l *lab) awaitAgent(node string) {
	l.Helper()
	l.eventually("an agent on "+node, func() string {
		if l.onNode(node, "pgrep -x nodeagent || true") == "" {
			return "there is none"
		}
		return ""
	})
}

// mountTarget is one of a file system's, as the stand-in lists it.
type mountTarget struct{ ID, FileSystemID, Zone, Address string }

// mountTargets are those of a file system: the one in the node's zone, and another.
func (l *lab) mountTargets(fileSystem, node string) (near, far mountTarget) {
	l.Helper()
	var world struct{ MountTargets map[string]mountTarget }
	if err := json.Unmarshal([]byte(l.lab("efs", "list", "-o", "json")), &world); err != nil {
		l.Fatal(err)
	}
	zone := l.kubectl("get", "node", node, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`)
	for _, target := range world.MountTargets {
		switch {
		case target.FileSystemID != fileSystem:
		case target.Zone == zone:
			near = target
		default:
			far = target
		}
	}
	if near.ID == "" || far.ID == "" {
		l.Fatalf("%s has no mount targets in zone %s and in another", fileSystem, zone)
	}
	return near, far
}

// table is the text of the ConfigMap of ports, nothing without one.
func (l *lab) table() string {
	l.Helper()
	return l.kubectl("-n", system, "get", "configmap", "efs-stunnel", "--ignore-not-found", "-o", `jsonpath={.data.efs-stunnel\.yaml}`)
}

// rewriteTable has the ConfigMap of ports say the same in other bytes, again and again.
func (l *lab) rewriteTable(times int) {
	l.Helper()
	table := l.table()
	for i := range times {
		l.putTable(fmt.Sprintf("%s\n# %d\n", table, i))
	}
}

// putTable has the ConfigMap say something else.
func (l *lab) putTable(text string) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"efs-stunnel.yaml": text}})
	if err != nil {
		l.Fatal(err)
	}
	l.kubectl("-n", system, "patch", "configmap", "efs-stunnel", "--type=merge", "-p", string(patch))
}
