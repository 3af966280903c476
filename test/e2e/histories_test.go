//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// refereePod stamps and writes the history of the clients: test/histories. Its node is never rebooted.
const refereePod = `apiVersion: v1
kind: Pod
metadata: {name: referee}
spec:
  nodeSelector: {kubernetes.io/hostname: node-1}
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    args: [referee, -history, /history/events.jsonl]
    securityContext: ` + restricted + `
    volumeMounts: [{name: history, mountPath: /history}]
  volumes: [{name: history, emptyDir: {}}]
---
`

// clientsPod is one of the pods whose clients do operations, as other clients after its node was rebooted.
const clientsPod = `apiVersion: v1
kind: Pod
metadata: {name: clients-%[1]d}
spec:
  nodeSelector: {kubernetes.io/hostname: %[2]s}
  restartPolicy: OnFailure
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %[3]s
    args: [clients, -dir, /data, -referee, "%[4]s", -slot, "%[5]d", -clients, "%[6]d", -slots, "%[7]d", -rest, %[8]s]
    securityContext: ` + restricted + `
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
`

// posixPod runs the tests of test/histories/posix on a volume, with a disk of the node as the reference.
const posixPod = `apiVersion: v1
kind: Pod
metadata: {name: posix}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: %s
    args: [-test.v, -dir, /data]
    securityContext: ` + restricted + `
    volumeMounts: [{name: data, mountPath: /data}, {name: local, mountPath: /tmp}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: local, emptyDir: {}}]
---
`

const (
	clientPods    = 4
	clientsOfAPod = 4
	// longHistory is for how long, and for how many events, the long run lets clients work. Each operation is two
	// events; locks that another client has, which are no operations, are one in a hundred.
	longHistory       = 20 * time.Minute
	longHistoryEvents = 210_000
	// rarely is the time between faults after which the kubelet or the agent waits before it restarts a program, each
	// time longer. If a tunnel were down for the lease of a minute, the server would take the locks away.
	rarely = 6 * time.Minute
)

// players are the clients of one history.
type players struct {
	lab *lab
	ns  string
}

// filesAreRight: what clients on two nodes read, rename, create and lock is what NFS promises, while the parts between
// them and the server fail, and no operation fails. In the short run the faults are those that a writer survives.
func filesAreRight(l *lab) {
	p := l.newHistory()
	p.play("nothing", func() {})
	if *long {
		p.everyFault()
		p.untilLong()
		p.play("node-2 loses its power", func() {
			l.lab("node", "stop", "node-2", "--hard")
			l.lab("node", "start", "node-2")
		})
		l.waitForAgents()
	} else {
		serial([]scenario{writesSurvive})(l)
		p.play("the kubelet killed on node-1", func() { l.onNode("node-1", "pkill -KILL -x kubelet") })
	}
	p.finish(times(400, 100_000))
}

// newHistory starts the clients of a history, and the referee that writes it.
func (l *lab) newHistory() players {
	l.Helper()
	l.run("env", "CGO_ENABLED=0", "go", "build", "-C", "test/histories", "-o", filepath.Join(l.root, "bin/histories"), ".")
	image := strings.TrimSpace(l.lab("image", "build", "efs-stunnel/histories:e2e", "--add", "bin/histories:/histories", "--entrypoint", "/histories"))
	p := players{l, l.namespace("histories")}
	l.apply(p.ns, claim("data", class, "file_system_id: "+shared)+fmt.Sprintf(refereePod, image))
	l.wait(p.ns, "condition=Ready", "pod/referee")
	referee := net.JoinHostPort(l.kubectl("-n", p.ns, "get", "pod", "referee", "-o", "jsonpath={.status.podIP}"), "7000")
	rest := times("2s", "0s") // two processors that emulate nodes have other scenarios to run
	for i := range clientPods {
		l.apply(p.ns, fmt.Sprintf(clientsPod, i, nodeOfClients(i), image, referee, i*clientsOfAPod, clientsOfAPod, clientPods*clientsOfAPod, rest))
	}
	return p
}

func nodeOfClients(pod int) string { return fmt.Sprintf("node-%d", pod%2+1) }

// everyFault happens once. Between the failures of mount targets are others, because each failover makes the next one
// wait longer.
func (p players) everyFault() {
	p.lab.Helper()
	p.mountTargetFails("silent", "node-1")
	p.tunnelsFail("node-1")
	p.programsFail("node-2")
	p.mountTargetFails("reset", "node-2")
}

// untilLong repeats faults until the history is long enough.
func (p players) untilLong() {
	begin, rare, mode := time.Now(), time.Now(), "reset"
	for round := 0; ; round++ {
		node := nodeOfClients(round)
		p.tunnelsFail(node)
		if time.Since(rare) > rarely {
			rare = time.Now()
			p.programsFail(node)
			p.mountTargetFails(mode, node)
			mode = map[string]string{"reset": "silent", "silent": "refuse", "refuse": "reset"}[mode]
		}
		if p.await() > longHistoryEvents && time.Since(begin) > longHistory {
			return
		}
	}
}

func (p players) tunnelsFail(node string) {
	p.play("stunnel killed on "+node, func() { p.lab.onNode(node, "pkill -KILL -x stunnel") })
	p.play("stunnel reloaded on "+node, func() { p.lab.onNode(node, "pkill -HUP -x stunnel") })
	p.play("the table is rewritten", func() { p.lab.rewriteTable(2) })
	p.play("the kubelet killed on "+node, func() { p.lab.onNode(node, "pkill -KILL -x kubelet") })
}

func (p players) programsFail(node string) {
	p.play("the agent killed on "+node, func() {
		p.lab.onNode(node, "pkill -KILL -x nodeagent")
		p.lab.waitForAgent(node)
	})
	p.play("the supervisor killed on "+node, func() { p.lab.onNode(node, killSupervisor) })
}

// mountTargetFails that is in the zone of a node.
func (p players) mountTargetFails(mode, node string) {
	l := p.lab
	l.Helper()
	target, _ := l.mountTargets(shared, node)
	l.Cleanup(func() { l.lab("efs", "update-mount-target", target.ID, "--mode=ok") })
	p.play("the mount target of "+node+": "+mode, func() { l.lab("efs", "update-mount-target", target.ID, "--mode="+mode) })
	l.lab("efs", "update-mount-target", target.ID, "--mode=ok")
}

// play has a fault happen, and waits until every client has gone on after it.
func (p players) play(fault string, happen func()) {
	p.lab.Helper()
	begin := time.Now()
	happen()
	events := p.await()
	p.lab.Logf("HISTORY %6d events, %5.1f s until every client went on: %s", events, time.Since(begin).Seconds(), fault)
}

// await waits until each client has done some operations more, and returns how long the history is.
func (p players) await() (events int) {
	l := p.lab
	l.Helper()
	l.eventually("every client to go on", func() string {
		args := []string{"-n", p.ns, "exec", "referee", "--", "/histories", "await", "-clients", strconv.Itoa(clientPods * clientsOfAPod)}
		out, err := l.try(l.client[0], slices.Concat(l.client[1:], args)...)
		if err != nil {
			return err.Error() // its kubelet may be restarting
		}
		var answer struct{ Time int }
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			return fmt.Sprintf("%q: %v", out, err)
		}
		events = answer.Time
		return ""
	})
	return events
}

// finish ends the clients, and has the checker judge their history of some operations at least, which it leaves in bin.
func (p players) finish(least int) {
	l := p.lab
	l.Helper()
	history := l.kubectl("-n", p.ns, "exec", "referee", "--", "/histories", "finish")
	file := filepath.Join(l.root, "bin/histories.jsonl")
	if err := os.WriteFile(file, []byte(history+"\n"), 0o644); err != nil {
		l.Fatal(err)
	}
	out, err := l.try("bin/histories", "check", "-history", file, "-at-least", strconv.Itoa(least))
	l.Logf("HISTORY %s", out)
	if err != nil {
		l.Errorf("the checker of %s: %v\n%s", file, err, out)
	}
	l.noServerCrashed()
}

// noServerCrashed: the lab starts one that has crashed again, and it knows no more which requests it has answered.
func (l *lab) noServerCrashed() {
	l.Helper()
	log, err := os.ReadFile(filepath.Join(l.dir, "logs/efs.log"))
	if err != nil {
		l.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "restart=true") {
			l.Errorf("an NFS server of the lab has crashed: %s", line)
		}
	}
}

// volumesArePosix but for the differences of NFS, while stunnel is killed once.
func volumesArePosix(l *lab) {
	l.run("env", "CGO_ENABLED=0", "go", "test", "-C", "test/histories", "-c", "-o", filepath.Join(l.root, "bin/posix.test"), "./posix")
	image := strings.TrimSpace(l.lab("image", "build", "efs-stunnel/posix:e2e", "--add", "bin/posix.test:/posix.test", "--entrypoint", "/posix.test"))
	ns := l.namespace("posix")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+fmt.Sprintf(posixPod, image))
	isKilled := false
	l.eventually("the tests of POSIX to pass", func() string {
		state := l.kubectl("-n", ns, "get", "pod", "posix", "-o", "jsonpath={.status.phase} {.spec.nodeName}")
		phase, node, _ := strings.Cut(state, " ")
		switch {
		case phase == "Succeeded" && !isKilled:
			l.Fatal("the tests of POSIX ended before stunnel was killed")
		case phase == "Succeeded":
			return ""
		case phase == "Failed":
			log, err := l.podLog(ns, "posix")
			l.Fatalf("the tests of POSIX failed: %v\n%s", err, log)
		case phase == "Running" && !isKilled:
			l.onNode(node, "pkill -KILL -x stunnel")
			isKilled = true
		}
		return "the pod is " + phase
	})
}
