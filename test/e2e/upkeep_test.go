//go:build e2e

package e2e

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// counter writes one number after the other into its volume, each to the server's disk before
// the next, from where an earlier pod left off. A write that fails ends it.
const counter = `apiVersion: apps/v1
kind: Deployment
metadata: {name: counter}
spec:
  strategy: {type: Recreate}
  selector: {matchLabels: {app: counter}}
  template:
    metadata: {labels: {app: counter}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: registry.lab:5000/lab/toolbox:1
        command:
        - sh
        - -ec
        - |
          n=$(tail -n 1 /data/numbers || echo 0)
          while n=$((n + 1)); do
            echo $n >> /data/numbers
            sync /data/numbers
            sleep 0.2
          done
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
`

// numbers are what the server has, which must be 1, 2, 3, … without a gap.
func (d directory) numbers() (last int) {
	d.lab.Helper()
	text, err := os.ReadFile(d.file("numbers"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.lab.Fatal(err)
	}
	end := strings.LastIndexByte(string(text), '\n') // the last line may be on its way
	for line := range strings.Lines(string(text[:end+1])) {
		last++
		if got := strings.TrimSpace(line); got != strconv.Itoa(last) {
			d.lab.Fatalf("line %d holds %q", last, got)
		}
	}
	return last
}

// wantProgress waits until the counter has written some more.
func (d directory) wantProgress() {
	d.lab.Helper()
	before := d.numbers()
	d.lab.eventually("the counter to go on", func() string {
		if now := d.numbers(); now < before+10 {
			return "it is at " + strconv.Itoa(now)
		}
		return ""
	})
}

// upgradeIsNotNoticed replaces every pod of the product under a writer.
func upgradeIsNotNoticed(l *lab) {
	ns := l.namespace("upgrade")
	l.apply(ns, claim("data", class)+counter)
	data := l.claimed(ns, "data")
	data.wantProgress()
	pod := l.kubectl("-n", ns, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
	for _, object := range []string{"daemonset/efs-stunnel", "deployment/efs-manager"} {
		l.kubectl("-n", system, "rollout", "restart", object)
		l.kubectl("-n", system, "rollout", "status", object, "--timeout="+limit.String())
	}
	data.wantProgress()
	const state = "jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}"
	if now := l.kubectl("-n", ns, "get", "pods", "-o", state); now != pod+" 0" {
		l.Errorf("the writer was %s and is %s: it noticed", pod, now)
	}
}

// drainMovesTheWriter: what it had written is there on the other node.
func drainMovesTheWriter(l *lab) {
	ns := l.namespace("drain")
	l.apply(ns, claim("data", class)+counter)
	data := l.claimed(ns, "data")
	data.wantProgress()
	node := l.kubectl("-n", ns, "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
	l.Cleanup(func() { l.kubectl("uncordon", node) })
	l.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+limit.String())
	l.kubectl("-n", ns, "rollout", "status", "deployment/counter", "--timeout="+limit.String())
	data.wantProgress()
	if now := l.kubectl("-n", ns, "get", "pods", "--field-selector", "status.phase=Running", "-o", "jsonpath={.items[*].spec.nodeName}"); now == node {
		l.Errorf("the writer is still on %s", node)
	}
}
