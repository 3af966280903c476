//go:build smoke

package smoke

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// recorder is a test that records its failures and those of its subtests.
type recorder struct {
	*testing.T
	failures *[]string
}

func record(t *testing.T) *recorder {
	t.Helper()
	return &recorder{T: t, failures: &[]string{}}
}

func (r *recorder) in(t *testing.T) *recorder {
	t.Helper()
	return &recorder{T: t, failures: r.failures}
}

func (r *recorder) record(text string) {
	*r.failures = append(*r.failures, r.Name()+": "+strings.TrimSpace(text))
}

func (r *recorder) Error(args ...any) {
	r.Helper()
	r.record(fmt.Sprintln(args...))
	r.T.Error(args...)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Helper()
	r.record(fmt.Sprintf(format, args...))
	r.T.Errorf(format, args...)
}

func (r *recorder) Fatal(args ...any) {
	r.Helper()
	r.record(fmt.Sprintln(args...))
	r.T.Fatal(args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Helper()
	r.record(fmt.Sprintf(format, args...))
	r.T.Fatalf(format, args...)
}

// printFailures prints all failures again.
func (r *recorder) printFailures() {
	r.Helper()
	if len(*r.failures) > 0 {
		r.Logf("what failed:\n%s", strings.Join(*r.failures, "\n"))
	}
}

// lastLines cuts a command's output down to its end.
func lastLines(text string, count int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-count):], "\n")
}

// printState prints the state of the cluster and the ends of the lab's logs, the most useful ones last.
func (l *testLab) printState() {
	files, _ := filepath.Glob(l.LogFile("*"))
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(l.weight(a), l.weight(b)) })
	_, _ = l.try("kubectl", "--", "describe", "pods", "-n", "smoke")
	_, _ = l.try("kubectl", "--", "get", "pods,pv,pvc,jobs,events", "-A", "-o", "wide")
	_, _ = l.try("efs", "status")
	_, _ = l.try("status")
	for _, file := range files {
		l.printLog(file)
	}
}

// weight orders logs by their use after a failure: least the processes of this machine, most the console
// and kubelet of a node.
func (l *testLab) weight(file string) int {
	s, err := l.Load()
	if err != nil {
		return 0 // any order will do
	}
	weights := map[string]int{}
	for _, n := range s.Nodes {
		weights[l.LogFile(n.Part())] = 1
		for _, log := range machine.GuestLogs() {
			weights[machine.LogFile(l.Lab, n, log)] = 1
		}
		weights[machine.LogFile(l.Lab, n, machine.Console)] = 2
		weights[machine.LogFile(l.Lab, n, "kubelet")] = 2
	}
	return weights[file]
}

func (l *testLab) printLog(file string) {
	data, err := os.ReadFile(file)
	if err != nil || len(data) == 0 {
		return
	}
	const enough = 1500
	l.t.Logf("end of %s:\n%s", file, data[max(0, len(data)-enough):])
}

func TestLogsOfNodesArePrintedLast(t *testing.T) {
	l := &testLab{t: record(t), Lab: state.Lab{Name: "t", Dir: t.TempDir()}}
	if err := l.Save(state.DefaultSettings()); err != nil {
		t.Fatal(err)
	}
	ascending := []string{"etcd", "node-1-containerd", "node-1-console"}
	for i, log := range ascending {
		if got := l.weight(l.LogFile(log)); got != i {
			t.Errorf("%s weighs %d, want %d", log, got, i)
		}
	}
}
