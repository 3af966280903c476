//go:build e2e

package e2e

// drainMovesTheWriter: what it had written is there on the other node, where it goes on.
func drainMovesTheWriter(l *lab) {
	ns := l.namespace("drain")
	l.apply(ns, claim("data", class)+scribe)
	data := l.claimed(ns, "data")
	data.awaitLines(10)
	node, _ := l.scribeOf(ns)
	l.Cleanup(func() { l.kubectl("uncordon", node) })
	l.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+limit.String())
	l.kubectl("-n", ns, "rollout", "status", "statefulset/scribe", "--timeout="+limit.String())
	data.awaitLines(len(data.lines()) + 10)
	if now, _ := l.scribeOf(ns); now == node {
		l.Errorf("the writer is still on %s", node)
	}
}
