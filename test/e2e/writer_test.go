//go:build e2e || acceptance

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// writerSet writes numbered lines, each synced to the server before the next, with the seconds since its
// node's start, and prints their numbers. It continues after the last line of an earlier pod. A failed write ends
// its container.
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
        image: ` + labImage + `
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
            echo "$n"
            sleep 0.05
          done
        securityContext: ` + restricted + `
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
    image: ` + labImage + `
    command: [sh, -c, "until [ -s /data/lines ]; do sleep 1; done; tail -n +1 -f /data/lines"]
    securityContext: ` + restricted + `
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
`

// writtenLine is a line of the writer.
type writtenLine struct {
	text string
	at   time.Duration // since the start of its node
}

// parseLines reads the writer's lines, which must be numbered without a gap.
func parseLines(text string) (all []writtenLine, err error) {
	end := strings.LastIndexByte(text, '\n') // the last line may be incomplete
	for line := range strings.Lines(text[:end+1]) {
		number, uptime, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.ParseDuration(uptime + "s")
		if number != strconv.Itoa(len(all)+1) || err != nil {
			return nil, fmt.Errorf("line %d of the writer holds %q", len(all)+1, line)
		}
		all = append(all, writtenLine{strings.TrimSpace(line), at})
	}
	return all, nil
}

// longestPause begins at the line before the index.
func longestPause(all []writtenLine, from int) (pause time.Duration) {
	for i := max(from, 1); i < len(all); i++ {
		pause = max(pause, all[i].at-all[i-1].at)
	}
	return pause
}

// waitForWriterLines waits until the writer has written so many lines, and returns them as its own pod sees them.
//
// While it waits it does not open the file. When Linux 6.1 gets the answers to an OPEN and a CLOSE in another order
// than the server gave them, it waits until nobody else on the node has opened the file for 5 seconds.
func (c *cluster) waitForWriterLines(namespace string, number int) (all []writtenLine) {
	c.Helper()
	c.eventually("the writer to write", func() string {
		last, err := c.podLog(namespace, "scribe-0", "--tail=1")
		if err != nil {
			return err.Error()
		}
		if n, err := strconv.Atoi(last); err != nil || n < number {
			return fmt.Sprintf("its last line is %q, want %d", last, number)
		}
		return ""
	})
	c.eventually("the writer's lines", func() string {
		text, err := c.tryKubectl("", "-n", namespace, "exec", "scribe-0", "--", "cat", "/data/lines")
		if err != nil {
			return fmt.Sprint(err, ": ", text)
		}
		if all, err = parseLines(text); err != nil {
			c.Fatal(err)
		}
		return ""
	})
	if len(all) < number {
		c.Fatalf("the writer's file has %d lines, and it has printed that it wrote %d", len(all), number)
	}
	return all
}

// writerOf returns the node of the writer, and an id that changes with its pod or container.
func (c *cluster) writerOf(namespace string) (node, writer string) {
	c.Helper()
	c.wait(namespace, "condition=Ready", "pod", "-l", "app=scribe") // its container has no status before
	const state = "jsonpath={.items[*].spec.nodeName} {.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}"
	node, writer, _ = strings.Cut(c.kubectl("-n", namespace, "get", "pods", "-l", "app=scribe", "-o", state), " ")
	return node, writer
}

func (c *cluster) expectSameWriter(namespace, writer string) {
	c.Helper()
	if _, now := c.writerOf(namespace); now != writer {
		c.Errorf("the writer was %s and is %s", writer, now)
	}
}
