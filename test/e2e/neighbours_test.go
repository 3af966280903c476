//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// renewals of a Lease are waited for beside a build: the leader renews it every two seconds or so, a kubelet
// its own every ten.
const renewals = 10

// buildCostsNoLease has four processes compute with the lowest priority, each in a session of its own, as a
// build on the lab's machine may. Where the kernel groups processes by session, niceness alone would give
// each of them as much as a node.
func buildCostsNoLease(l *lab) {
	leases := []string{"lease/efs-manager -n " + system}
	for node := range strings.FieldsSeq(l.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")) {
		leases = append(leases, "lease/"+node+" -n kube-node-lease")
	}
	holder := l.leaseHolder()
	for range 4 {
		build := exec.CommandContext(l.Context(), "nice", "-n", "19", "sh", "-c", "while :; do :; done")
		build.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
		if err := build.Start(); err != nil {
			l.Fatal(err)
		}
		defer func() {
			_ = build.Process.Kill()
			_ = build.Wait()
		}()
	}
	longest := map[string]time.Duration{}
	for _, lease := range leases {
		last := l.renewed(lease)
		for range renewals {
			next := last
			l.eventually("a renewal of "+lease, func() string {
				if next = l.renewed(lease); next.Equal(last) {
					return "none since " + last.String()
				}
				return ""
			})
			longest[lease] = max(longest[lease], next.Sub(last))
			last = next
		}
	}
	l.Logf("longest times between renewals beside four builds: %v", longest)
	if now := l.leaseHolder(); now != holder {
		l.Errorf("beside four builds %s lost its Lease to %s", holder, now)
	}
	if nodes := l.kubectl("get", "nodes", "--no-headers"); strings.Contains(nodes, "NotReady") {
		l.Errorf("beside four builds a node is not ready:\n%s", nodes)
	}
}

// renewed returns the time of a Lease's latest renewal. The Lease is named as in kubectl's arguments.
func (l *lab) renewed(lease string) time.Time {
	l.Helper()
	text := l.kubectl(append([]string{"get", "-o", "jsonpath={.spec.renewTime}"}, strings.Fields(lease)...)...)
	renewed, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		l.Fatalf("%s: %v", lease, err)
	}
	return renewed
}
