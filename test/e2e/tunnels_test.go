//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Pods on two nodes: one writes numbered lines, each to the server's disk before the next, with
// the seconds since its node's start; the other prints them as they come. A write that fails ends
// the writer, and with it the pod.
const scribes = `apiVersion: v1
kind: Pod
metadata: {name: scribe, labels: {app: scribe}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: registry.lab:5000/lab/toolbox:1
    command:
    - sh
    - -ec
    - |
      n=0
      while n=$((n + 1)); do
        read -r now _ < /proc/uptime
        echo "$n $now" >> /data/lines
        sync /data/lines
      done
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: v1
kind: Pod
metadata: {name: listener}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  affinity:
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: scribe}}}
  containers:
  - name: main
    image: registry.lab:5000/lab/toolbox:1
    command: [sh, -c, "until [ -s /data/lines ]; do sleep 1; done; tail -n +1 -f /data/lines"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
`

// faultsAreNotNoticed: whatever dies between the kernel's NFS client and the server, every line
// arrives once and in order, and no write fails. How long writing paused is printed.
func faultsAreNotNoticed(l *lab) {
	ns := l.namespace("faults")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+scribes)
	data := l.claimed(ns, "data")
	l.wait(ns, "condition=Ready", "pod/scribe", "pod/listener")
	node := l.kubectl("-n", ns, "get", "pod", "scribe", "-o", "jsonpath={.spec.nodeName}")
	near, far := l.mountTargets(shared, node)
	set := func(target, mode string) { l.lab("efs", "update-mount-target", target, "--mode", mode) }
	l.Cleanup(func() { set(near, "ok"); set(far, "ok") })

	data.wantLines("at first", func() {})
	for i := range 20 {
		data.wantLines(fmt.Sprintf("stunnel killed, %d", i+1), func() { l.onNode(node, "pkill -KILL -x stunnel") })
	}
	data.wantLines("agent killed", func() { l.onNode(node, "pkill -KILL -x nodeagent") })
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

	if phase := l.kubectl("-n", ns, "get", "pod", "scribe", "-o", "jsonpath={.status.phase}"); phase != "Running" {
		l.Errorf("the writer is %s: it noticed", phase)
	}
	written := data.lines()
	l.eventually("the reader on the other node to have every line", func() string {
		heard := strings.Split(l.kubectl("-n", ns, "logs", "listener"), "\n")
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

// written is a line of the scribe.
type written struct {
	text string
	at   time.Duration // since the start of its node
}

// lines are what the server has, which must be numbered without a gap.
func (d directory) lines() []written {
	d.lab.Helper()
	text, err := os.ReadFile(d.file("lines"))
	if err != nil && !os.IsNotExist(err) {
		d.lab.Fatal(err)
	}
	end := strings.LastIndexByte(string(text), '\n') // the last line may be on its way
	var all []written
	for line := range strings.Lines(string(text[:end+1])) {
		number, uptime, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.ParseDuration(uptime + "s")
		if number != strconv.Itoa(len(all)+1) || err != nil {
			d.lab.Fatalf("line %d holds %q", len(all)+1, line)
		}
		all = append(all, written{strings.TrimSpace(line), at})
	}
	return all
}

// wantLines makes a fault and waits until writing goes on; it prints the longest pause.
func (d directory) wantLines(fault string, happen func()) {
	d.lab.Helper()
	before := len(d.lines())
	happen()
	after := len(d.lines())
	var all []written
	d.lab.eventually("the writer to go on after: "+fault, func() string {
		if all = d.lines(); len(all) < after+5 {
			return fmt.Sprintf("%d lines, then %d", after, len(all))
		}
		return ""
	})
	var pause time.Duration
	for i := max(before, 1); i < len(all); i++ {
		pause = max(pause, all[i].at-all[i-1].at)
	}
	d.lab.Logf("PAUSE %5.2f s, %4d lines: %s", pause.Seconds(), len(all)-before, fault)
}

// mountTargets are those of a file system: the one in the node's zone, and another.
func (l *lab) mountTargets(fileSystem, node string) (near, far string) {
	l.Helper()
	var world struct {
		MountTargets map[string]struct{ ID, FileSystemID, Zone string }
	}
	if err := json.Unmarshal([]byte(l.lab("efs", "list", "-o", "json")), &world); err != nil {
		l.Fatal(err)
	}
	zone := l.kubectl("get", "node", node, "-o", `jsonpath={.metadata.labels.topology\.kubernetes\.io/zone}`)
	for _, target := range world.MountTargets {
		switch {
		case target.FileSystemID != fileSystem:
		case target.Zone == zone:
			near = target.ID
		default:
			far = target.ID
		}
	}
	if near == "" || far == "" {
		l.Fatalf("%s has no mount targets in zone %s and in another", fileSystem, zone)
	}
	return near, far
}

// rewriteTable has the ConfigMap of ports say the same in other bytes, again and again.
func (l *lab) rewriteTable(times int) {
	l.Helper()
	table := l.kubectl("-n", system, "get", "configmap", "efs-stunnel", "-o", `jsonpath={.data.efs-stunnel\.yaml}`)
	for i := range times {
		patch, err := json.Marshal(map[string]any{"data": map[string]string{
			"efs-stunnel.yaml": fmt.Sprintf("%s\n# %d\n", table, i),
		}})
		if err != nil {
			l.Fatal(err)
		}
		l.kubectl("-n", system, "patch", "configmap", "efs-stunnel", "--type=merge", "-p", string(patch))
	}
}
