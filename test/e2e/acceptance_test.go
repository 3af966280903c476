//go:build acceptance

package e2e

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/test/e2e/report"
)

// TestAcceptance runs the scenarios of any cluster on the one that KUBECONFIG names, and writes a report.
func TestAcceptance(t *testing.T) {
	interrupted, stop := signal.NotifyContext(context.WithoutCancel(t.Context()), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)                      // after the others, which a first signal does not end
	context.AfterFunc(interrupted, stop) // a second signal kills at once
	c := &cluster{T: t, settings: userSettings(t)}
	c.interrupted = interrupted.Done()
	class, status := c.checkSettings()

	a := &acceptance{cluster: c, report: report.Report{Began: time.Now(), Facts: c.facts(status), Class: c.classYAML(class)}}
	t.Cleanup(a.write)
	c.removeLeftovers() // of a run that was killed
	t.Cleanup(c.removeLeftovers)
	c.class = c.newClass(c.derived, nil)
	t.Run("claims", func(t *testing.T) {
		for _, s := range claimsAnywhere {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				a.run(t, s)
			})
		}
	})
	for _, s := range upkeepAnywhere {
		t.Run(s.name, func(t *testing.T) { a.run(t, s) })
	}
}

// removeLeftovers removes everything that has the label of the run.
func (c *cluster) removeLeftovers() {
	c.Helper()
	label := runLabel + "=" + c.derived
	for node := range strings.FieldsSeq(c.kubectl("get", "nodes", "-l", label, "-o", "jsonpath={.items[*].metadata.name}")) {
		c.uncordon(node)
	}
	namespaces := strings.Fields(c.kubectl("get", "namespaces", "-l", label, "-o", "jsonpath={.items[*].metadata.name}"))
	c.kubectl("delete", "namespaces", "-l", label, "--timeout="+limit.String())
	c.waitForNoVolume(func(class, namespace string) bool {
		return class == c.derived || class == c.derived+"-trash" || slices.Contains(namespaces, namespace)
	})
	c.kubectl("delete", "storageclasses", "-l", label)
}

// acceptance collects what the scenarios found.
type acceptance struct {
	*cluster
	mu     sync.Mutex
	report report.Report // guarded by mu
}

func (a *acceptance) run(t *testing.T, s anywhere) {
	c, begin := a.withT(t), time.Now()
	t.Cleanup(func() { a.add(c, s.name) }) // after those of the scenario
	defer func() { c.found.Took = time.Since(begin) }()
	select {
	case <-c.interrupted:
		c.require(false, "the run was interrupted")
	default:
	}
	s.run(c)
}

func (a *acceptance) add(c *cluster, name string) {
	c.found.Name, c.found.Result = name, report.Passed
	switch {
	case c.Failed():
		c.found.Result = report.Failed
	case c.Skipped():
		c.found.Result = report.Skipped
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.Scenarios = append(a.report.Scenarios, c.found)
}
