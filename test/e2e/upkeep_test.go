//go:build e2e

package e2e

// drainedWriterContinuesElsewhere: it finds its lines on the other node, and continues.
func drainedWriterContinuesElsewhere(l *lab) {
	ns := l.namespace("drain")
	l.apply(ns, claim("data", class)+writerSet)
	data := l.waitForClaim(ns, "data")
	data.waitForLines(10)
	node, _ := l.writerOf(ns)
	l.Cleanup(func() { l.kubectl("uncordon", node) })
	l.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout="+limit.String())
	l.kubectl("-n", ns, "rollout", "status", "statefulset/scribe", "--timeout="+limit.String())
	data.waitForLines(len(data.lines()) + 10)
	if now, _ := l.writerOf(ns); now == node {
		l.Errorf("the writer is still on %s", node)
	}
}
