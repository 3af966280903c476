//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// writerSet writes numbered lines, each synced to the server before the next, with the seconds since its
// node's start. It continues after the last line of an earlier pod. A failed write ends its container.
const writerSet = `apiVersion: apps/v1
kind: StatefulSet # which makes no pod while another one ends
metadata: {name: scribe}
spec:
  selector: {matchLabels: {app: scribe}}
  template:
    metadata: {labels: {app: scribe}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: registry.lab:5000/lab/toolbox:1
        command:
        - sh
        - -ec
        - |
          touch /data/lines
          n=$(tail -n 1 /data/lines | cut -d ' ' -f 1)
          while n=$((n + 1)); do
            read -r now _ < /proc/uptime
            echo "$n $now" >> /data/lines
            sync /data/lines
            sleep 0.05
          done
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
`

// readerPod prints the writer's lines on the other node.
const readerPod = `apiVersion: v1
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

// writtenLine is a line of the writer.
type writtenLine struct {
	text string
	at   time.Duration // since the start of its node
}

// lines are those on the server, which must be numbered without a gap.
func (d directory) lines() []writtenLine {
	d.lab.Helper()
	text, err := os.ReadFile(d.file("lines"))
	if err != nil && !os.IsNotExist(err) {
		d.lab.Fatal(err)
	}
	end := strings.LastIndexByte(string(text), '\n') // the last line may be incomplete
	var all []writtenLine
	for line := range strings.Lines(string(text[:end+1])) {
		number, uptime, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.ParseDuration(uptime + "s")
		if number != strconv.Itoa(len(all)+1) || err != nil {
			d.lab.Fatalf("line %d holds %q", len(all)+1, line)
		}
		all = append(all, writtenLine{strings.TrimSpace(line), at})
	}
	return all
}

// waitForLines waits until the server has so many lines.
func (d directory) waitForLines(number int) (all []writtenLine) {
	d.lab.Helper()
	d.lab.eventually("the writer to continue", func() string {
		if all = d.lines(); len(all) < number {
			return fmt.Sprintf("there are %d lines, want %d", len(all), number)
		}
		return ""
	})
	return all
}

// writerOf returns the node of the writer, and an id that changes with its pod or container.
func (l *lab) writerOf(namespace string) (node, writer string) {
	l.Helper()
	l.wait(namespace, "condition=Ready", "pod", "-l", "app=scribe") // its container has no status before
	const state = "jsonpath={.items[*].spec.nodeName} {.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}"
	node, writer, _ = strings.Cut(l.kubectl("-n", namespace, "get", "pods", "-l", "app=scribe", "-o", state), " ")
	return node, writer
}

func (l *lab) expectSameWriter(namespace, writer string) {
	l.Helper()
	if _, now := l.writerOf(namespace); now != writer {
		l.Errorf("the writer was %s and is %s", writer, now)
	}
}
