//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
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

func (l *lab) Errorf(format string, args ...any) {
	l.Helper()
	l.failed(fmt.Sprintf(format, args...))
	l.T.Errorf(format, args...)
}

func (l *lab) Fatalf(format string, args ...any) {
	l.Helper()
	l.failed(fmt.Sprintf(format, args...))
	l.T.Fatalf(format, args...)
}

func (l *lab) Error(args ...any) {
	l.Helper()
	l.failed(fmt.Sprintln(args...))
	l.T.Error(args...)
}

func (l *lab) Fatal(args ...any) {
	l.Helper()
	l.failed(fmt.Sprintln(args...))
	l.T.Fatal(args...)
}

// failed dumps the cluster at a scenario's first failure.
func (l *lab) failed(why string) {
	l.Helper()
	failures.Lock()
	fmt.Fprintf(&failures, "%s: %s\n", l.Name(), strings.TrimSpace(why))
	failures.Unlock()
	l.dumped.Do(l.dump)
}

// dump prints objects, events and logs.
func (l *lab) dump() {
	l.Helper()
	for _, args := range [][]string{
		{"get", "nodes,pods,pvc,pv,jobs", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "efs-stunnel", "get", "configmap", "efs-stunnel", "-o", "yaml"},
		{"-n", "efs-stunnel", "logs", "-l", "app.kubernetes.io/component=manager", "--tail=60", "--prefix"},
		{"-n", "efs-stunnel", "logs", "-l", "app.kubernetes.io/component=node-agent", "--all-containers", "--tail=40", "--prefix"},
	} {
		out, err := l.tryKubectl("", args...)
		l.Logf("%v, %v:\n%s", args, err, out)
	}
}
