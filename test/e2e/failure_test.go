//go:build e2e || acceptance

package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"gnuthought.com/efs-stunnel/test/e2e/report"
)

// failures are repeated at the end of the output, where they are easy to find.
var failures struct {
	sync.Mutex
	strings.Builder
}

func TestMain(m *testing.M) {
	code := m.Run()
	if failures.Len() > 0 {
		fmt.Printf("\nWhat failed:\n%s", failures.String())
	}
	os.Exit(code)
}

func (c *cluster) Errorf(format string, args ...any) {
	c.Helper()
	c.failed(fmt.Sprintf(format, args...))
	c.T.Errorf(format, args...)
}

func (c *cluster) Fatalf(format string, args ...any) {
	c.Helper()
	c.failed(fmt.Sprintf(format, args...))
	c.T.Fatalf(format, args...)
}

func (c *cluster) Error(args ...any) {
	c.Helper()
	c.failed(fmt.Sprintln(args...))
	c.T.Error(args...)
}

func (c *cluster) Fatal(args ...any) {
	c.Helper()
	c.failed(fmt.Sprintln(args...))
	c.T.Fatal(args...)
}

// failed records a failure, and at a scenario's first one what kubectl shows.
func (c *cluster) failed(why string) {
	c.Helper()
	why = strings.TrimSpace(why)
	c.found.Failures = append(c.found.Failures, why)
	failures.Lock()
	fmt.Fprintf(&failures, "%s: %s\n", c.Name(), why)
	failures.Unlock()
	c.dumped.Do(c.dump)
}

// dump prints objects, events and logs.
func (c *cluster) dump() {
	c.Helper()
	if c.evidence == nil {
		return // a test without a cluster
	}
	for _, args := range c.evidence(c.namespaces) {
		out, err := c.tryKubectl("", args...)
		if err != nil {
			out += err.Error()
		}
		c.Logf("%v:\n%s", args, out)
		c.found.Evidence = append(c.found.Evidence, report.Output{Command: "kubectl " + strings.Join(args, " "), Text: out})
	}
}
