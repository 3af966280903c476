//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// faultsAreNotNoticed: whatever dies, is replaced or gives wrong answers between the kernel's NFS
// client and the server, every line arrives once and in order, and no write fails. How long writing
// paused is printed.
func faultsAreNotNoticed(l *lab) {
	ns := l.namespace("faults")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+scribe+listener)
	data := l.claimed(ns, "data")
	l.wait(ns, "condition=Ready", "pod/listener")
	data.awaitLines(1)
	node, writer := l.scribeOf(ns)

	data.wantLines("at first", func() {})
	data.emptyListingsRemoveNothing(func() { data.processesDie(node) })
	data.wantLines("table rewritten", func() { l.rewriteTable(times(5, 50)) })
	data.brokenTableIsServedOn(ns)
	data.mountTargetsFail(node)
	data.everyPodIsReplaced()

	l.wantSame(ns, writer)
	data.awaitListener(ns)
}

func (d directory) processesDie(node string) {
	l := d.lab
	l.Helper()
	for i := range times(3, 20) {
		d.wantLines(fmt.Sprintf("stunnel killed, %d", i+1), func() { l.onNode(node, "pkill -KILL -x stunnel") })
	}
	for i := range times(1, 3) {
		d.wantLines(fmt.Sprintf("agent killed, %d", i+1), func() { l.onNode(node, "pkill -KILL -x nodeagent") })
		l.awaitAgent(node)
	}
	if *long {
		d.wantLines("agent out of memory", func() { l.starve(node) })
		l.awaitAgent(node)
	}
	d.wantLines("supervisor killed", func() { l.onNode(node, "pkill -KILL -x nodeagent-super") })
}

// emptyListingsRemoveNothing: while other faults happen, the EFS API lists no file system for longer
// than one that is deleted stays in the table.
func (d directory) emptyListingsRemoveNothing(meanwhile func()) {
	l := d.lab
	l.Helper()
	const enough = 5
	targets := func() string {
		text, _, _ := strings.Cut(l.table(), "last_update:")
		return regexp.MustCompile(` +not_found_since:.*\n`).ReplaceAllString(text, "")
	}
	want := targets()
	l.Cleanup(func() { l.lab("efs", "faults", "clear") })
	l.lab("efs", "faults", "set", "empty")
	before := l.listings()
	meanwhile()
	l.eventually("more listings", func() string {
		if now := l.listings(); now < before+enough {
			return fmt.Sprintf("there were %d, want %d", now-before, enough)
		}
		return ""
	})
	if diff := cmp.Diff(want, targets()); diff != "" {
		l.Errorf("targets mismatch after listings without any (-want +got):\n%s", diff)
	}
	l.lab("efs", "faults", "clear")
	d.wantLines("the EFS API lists nothing", func() {})
}

// listings counts the answers of the EFS API about file systems.
func (l *lab) listings() int {
	l.Helper()
	var status struct{ Calls map[string]map[string]int }
	if err := json.Unmarshal([]byte(l.lab("efs", "status", "-o", "json")), &status); err != nil {
		l.Fatal(err)
	}
	return status.Calls["DescribeFileSystems"]["OK"]
}

func (d directory) mountTargetsFail(node string) {
	l := d.lab
	l.Helper()
	near, far := l.mountTargets(shared, node)
	set := func(target mountTarget, mode string) { l.lab("efs", "update-mount-target", target.ID, "--mode", mode) }
	l.Cleanup(func() { set(near, "ok"); set(far, "ok") })
	d.wantLines("mount target refuses", func() { set(near, "refuse") })
	d.wantLines("the other one refuses, the first serves", func() { set(near, "ok"); set(far, "refuse") })
	set(far, "ok")
	if !*long {
		return
	}
	d.wantLines("mount target resets connections", func() { set(near, "reset") })
	set(near, "ok")
	d.wantLines("mount target is dark", func() { set(near, "drop"); set(far, "ok") })
	d.wantLines("the other one is dark, the first serves", func() { set(near, "ok"); set(far, "drop") })
	set(far, "ok")
	d.wantLines("mount target is silent", func() { set(near, "silent") })
	set(near, "ok")
}

// everyPodIsReplaced as in an upgrade.
func (d directory) everyPodIsReplaced() {
	l := d.lab
	l.Helper()
	for _, object := range []string{"daemonset/efs-stunnel", "deployment/efs-manager"} {
		d.wantLines(object+" is replaced", func() {
			l.kubectl("-n", system, "rollout", "restart", object)
			l.kubectl("-n", system, "rollout", "status", object, "--timeout="+limit.String())
		})
	}
}

// awaitListener waits until the reader on the other node has every line.
func (d directory) awaitListener(ns string) {
	l := d.lab
	l.Helper()
	written := d.lines()
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
