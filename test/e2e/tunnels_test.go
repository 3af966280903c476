//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
)

// writesSurviveFaults: while parts between the kernel's NFS client and the server are killed, replaced or
// respond wrongly, every line arrives once and in order, and no write fails. The writer pauses no longer
// than the fault is allowed to cost.
func writesSurviveFaults(l *lab) {
	ns := l.namespace("faults")
	l.apply(ns, claim("data", class, "file_system_id: "+shared)+writerSet+readerPod)
	data := l.waitForClaim(ns, "data")
	l.wait(ns, "condition=Ready", "pod/listener")
	data.waitForLines(1)
	node, writer := l.writerOf(ns)
	w := data.writer(node)

	l.emptyListingsRemoveNothing(func() { // tunnels and volumes do not depend on them
		w.measureUndisturbed(time.Duration(times(5, 60)) * time.Second)
		w.processesDie()
	})
	w.expectPause("table rewritten", momentary, func() { l.rewriteTable(times(5, 50)) })
	w.tunnelsSurviveABrokenTable(ns)
	w.everyPodIsReplaced()
	w.mountTargetsFail() // with new agents: each failover makes the next one wait longer
	l.expectSameWriter(ns, writer)
	if *long {
		w.agentIsEvicted(ns, writer)
	}
	data.waitForReader(ns)
}

func (w *writer) processesDie() {
	l := w.lab
	l.Helper()
	for i := range times(2, 20) {
		w.expectPause(fmt.Sprintf("stunnel killed, %d", i+1), momentary, func() { l.onNode(w.node, "pkill -KILL -x stunnel") })
	}
	for i := range times(1, 20) {
		w.expectPause(fmt.Sprintf("stunnel reloaded, %d", i+1), momentary, func() { l.onNode(w.node, "pkill -HUP -x stunnel") })
	}
	for i := range times(1, 3) {
		w.expectPause(fmt.Sprintf("agent killed, %d", i+1), momentary, func() {
			l.onNode(w.node, "pkill -KILL -x nodeagent")
			l.waitForAgent(w.node)
		})
	}
	if *long {
		w.expectPause("agent out of memory", momentary, func() {
			l.killAgentByMemory(w.node)
			l.waitForAgent(w.node)
		})
	}
	w.supervisorIsKilled()
}

// supervisorIsKilled: the kubelet restarts its container, and the time for stunnel is added.
func (w *writer) supervisorIsKilled() {
	l := w.lab
	l.Helper()
	var restart time.Duration
	pause, lines := w.pauseDuring(func() {
		output := l.onNode(w.node, killSupervisor)
		var err error
		if restart, err = between(output); err != nil {
			l.Fatalf("killing the supervisor printed %q: %v", output, err)
		}
	})
	fault := fmt.Sprintf("supervisor killed, which was back after %.2f s", restart.Seconds())
	w.checkPause(fault, pause, lines, allowance{wait: restart, work: work})
}

// The kubelet's probes are the same program with other arguments than flags.
const (
	supervisorOf   = "pgrep -oxf '/usr/local/bin/nodeagent-supervise( --.*)?'"
	killSupervisor = `was=$(` + supervisorOf + `) && kill -KILL "$was" && read -r from _ < /proc/uptime || exit
		until now=$(` + supervisorOf + `) && [ "$now" != "$was" ]; do sleep 0.1; done
		read -r to _ < /proc/uptime
		echo "$from $to"`
)

// between returns the difference of two times in seconds.
func between(times string) (time.Duration, error) {
	from, to, _ := strings.Cut(times, " ")
	begin, err := time.ParseDuration(from + "s")
	if err != nil {
		return 0, err
	}
	end, err := time.ParseDuration(to + "s")
	return end - begin, err
}

// emptyListingsRemoveNothing: while other faults happen, the EFS API lists no file system, for more polls
// than a deleted one stays in the table.
func (l *lab) emptyListingsRemoveNothing(meanwhile func()) {
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
}

// listings counts the responses of the EFS API about file systems.
func (l *lab) listings() int {
	l.Helper()
	var status struct{ Calls map[string]map[string]int }
	if err := json.Unmarshal([]byte(l.lab("efs", "status", "-o", "json")), &status); err != nil {
		l.Fatal(err)
	}
	return status.Calls["DescribeFileSystems"]["OK"]
}

// everyPodIsReplaced, as in an upgrade: in the short run those of agents, because tunnels need no manager.
func (w *writer) everyPodIsReplaced() {
	l := w.lab
	l.Helper()
	for _, object := range []string{"daemonset/efs-stunnel", "deployment/efs-manager"}[:times(1, 2)] {
		w.expectPause(object+" is replaced", momentary, func() {
			l.kubectl("-n", system, "rollout", "restart", object)
			l.kubectl("-n", system, "rollout", "status", object, "--timeout="+limit.String())
			l.waitForAgents() // the old ones hand over once the new ones are ready
		})
	}
}

// agentIsEvicted while a pod of its node writes: the evicted pod serves until the writer has ended, and
// no longer. It ends the writer.
func (w *writer) agentIsEvicted(ns, writer string) {
	l := w.lab
	l.Helper()
	const servesOn = 270 * time.Second // at most, also with connections
	agent := l.agentOf(w.node)
	begin := time.Now()
	w.expectPause("agent's pod evicted", momentary, func() {
		l.evict(system, agent)
		w.waitForWriting(time.Duration(times(10, 60)) * time.Second)
	})
	if l.onNode(w.node, "pgrep -x stunnel || true") == "" {
		l.Errorf("no stunnel runs on %s while a pod writes", w.node)
	}
	l.expectSameWriter(ns, writer)
	l.kubectl("-n", ns, "delete", "statefulset", "scribe", "--cascade=foreground", "--timeout="+limit.String())
	l.wait(system, "delete", "pod/"+agent)
	took := time.Since(begin)
	l.Logf("the evicted pod %s ended after %.1f s", agent, took.Seconds())
	if took >= servesOn {
		l.Errorf("pod %s served on for %s, though its last user had ended", agent, took)
	}
	l.waitForAgents()
}

// agentOf returns the name of the agent's pod on a node.
func (l *lab) agentOf(node string) (pod string) {
	l.Helper()
	return l.kubectl("-n", system, "get", "pods", "-l", "app.kubernetes.io/component=node-agent",
		"--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[*].metadata.name}")
}

// waitForAgents waits until each node has one agent's pod, which is ready, and none that is ending.
func (l *lab) waitForAgents() {
	l.Helper()
	const template = `jsonpath={range .items[*]}{.spec.nodeName} ends:{.metadata.deletionTimestamp} ready:{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`
	var want []string
	for node := range strings.FieldsSeq(l.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")) {
		want = append(want, node+" ends: ready:True")
	}
	slices.Sort(want)
	l.eventually("one agent on each node", func() string {
		pods := l.kubectl("-n", system, "get", "pods", "-l", "app.kubernetes.io/component=node-agent", "-o", template)
		got := slices.Sorted(strings.SplitSeq(pods, "\n"))
		return cmp.Diff(want, got)
	})
}

// waitForReader waits until the reader on the other node has printed every line.
func (d directory) waitForReader(ns string) {
	l := d.lab
	l.Helper()
	written := d.lines()
	l.eventually("the reader on the other node to have every line", func() string {
		log, err := l.podLog(ns, "listener")
		if err != nil {
			return err.Error()
		}
		printed := strings.Split(log, "\n")
		for i := range min(len(printed), len(written)) {
			if printed[i] != written[i].text {
				l.Fatalf("line %d is %q to the reader, and %q on the server", i+1, printed[i], written[i].text)
			}
		}
		if len(printed) < len(written) {
			return fmt.Sprintf("it has %d of %d", len(printed), len(written))
		}
		return ""
	})
}

// killAgentByMemory limits a node's agent to less memory than it uses, and waits until the kernel has
// killed it.
func (l *lab) killAgentByMemory(node string) {
	l.Helper()
	before := l.onNode(node, "pgrep -x nodeagent")
	l.onNode(node, `echo 1M > "/sys/fs/cgroup$(cut -d : -f 3 "/proc/$(pgrep -x nodeagent)/cgroup")/memory.max"`)
	l.eventually("the kernel to kill the agent", func() string {
		if l.onNode(node, "pgrep -x nodeagent || true") == before {
			return "it still runs"
		}
		return ""
	})
}

// waitForAgent waits until the kubelet has restarted the agent of a node, with its growing backoff.
func (l *lab) waitForAgent(node string) {
	l.Helper()
	l.eventually("an agent on "+node, func() string {
		if l.onNode(node, "pgrep -x nodeagent || true") == "" {
			return "there is none"
		}
		return ""
	})
}

// table returns the text of the target table, "" without its ConfigMap.
func (l *lab) table() string {
	l.Helper()
	return l.kubectl("-n", system, "get", "configmap", "efs-stunnel", "--ignore-not-found", "-o", `jsonpath={.data.efs-stunnel\.yaml}`)
}

// rewriteTable changes the bytes of the table, and not its content, several times.
func (l *lab) rewriteTable(times int) {
	l.Helper()
	table := l.table()
	for i := range times {
		l.putTable(fmt.Sprintf("%s\n# %d\n", table, i))
	}
}

// putTable replaces the text of the table.
func (l *lab) putTable(text string) {
	l.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"efs-stunnel.yaml": text}})
	if err != nil {
		l.Fatal(err)
	}
	l.kubectl("-n", system, "patch", "configmap", "efs-stunnel", "--type=merge", "-p", string(patch))
}
