//go:build smoke

package smoke

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// limit is the longest time that the test waits for anything: emulated machines on a busy host are slow.
const limit = 10 * time.Minute

// testLab is a lab of this test, used through the lab program.
type testLab struct {
	t       *recorder
	program string
	state.Lab
}

// newLab describes a lab of a name. It removes what an earlier run may have left of it, and at the end
// what this run has made. CI keeps only the end of a failed run's output, so failures are repeated
// there.
func newLab(t *recorder, name string) *testLab {
	t.Helper()
	program, err := filepath.Abs("../../../bin/lab")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: run `make lab` first", err)
	}
	lab, err := state.New(name)
	if err != nil {
		t.Fatal(err)
	}
	l := &testLab{t: t, program: program, Lab: lab}
	l.lab("down")
	t.Cleanup(func() {
		if t.Failed() {
			l.printState()
		}
		l.lab("down")
		l.wantNothingLeft()
		t.printFailures()
	})
	return l
}

// in returns the same lab in a subtest.
func (l *testLab) in(t *testing.T) *testLab {
	t.Helper()
	return &testLab{t: l.t.in(t), program: l.program, Lab: l.Lab}
}

// lab runs one command of the lab program and returns what it printed.
func (l *testLab) lab(args ...string) string {
	l.t.Helper()
	out, err := l.try(args...)
	if err != nil {
		l.t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, lastLines(out, 40))
	}
	return out
}

// try is lab for a command that may fail.
func (l *testLab) try(args ...string) (string, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.program, append([]string{"--name", l.Name}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	err := cmd.Run()
	l.t.Logf("lab %s (%.1f s)\n%s", strings.Join(args, " "), time.Since(begin).Seconds(), out.String())
	return out.String(), err
}

func (l *testLab) kubectl(args ...string) string {
	l.t.Helper()
	return l.lab(append([]string{"kubectl", "--"}, args...)...)
}

// inPod runs a shell line in a pod's only container. It retries, because a kubelet on a busy host may not
// answer in time.
func (l *testLab) inPod(pod, line string) (out string) {
	l.t.Helper()
	l.eventually(pod+" to run "+line, func() string {
		var err error
		if out, err = l.try("kubectl", "--", "-n", "smoke", "exec", pod, "--", "sh", "-ec", line); err != nil {
			return fmt.Sprint(err, ": ", lastLines(out, 40))
		}
		return ""
	})
	return strings.TrimSpace(out)
}

// eventually polls until check finds nothing missing.
func (l *testLab) eventually(what string, check func() (missing string)) {
	l.t.Helper()
	deadline := time.Now().Add(limit)
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		missing := check()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("waiting for %s: %s", what, missing)
		}
		<-ticker.C
	}
}

// apply applies a file of testdata.
func (l *testLab) apply(file string) {
	l.t.Helper()
	l.kubectl("apply", "-f", filepath.Join("testdata", file))
}

// wait is kubectl wait with the test's limit.
func (l *testLab) wait(args ...string) {
	l.t.Helper()
	l.kubectl(append([]string{"-n", "smoke", "wait", fmt.Sprintf("--timeout=%ds", int(limit.Seconds()))}, args...)...)
}

// mountTargets reads the stand-in's inventory.
func (l *testLab) mountTargets(fileSystem string) []inventory.MountTarget {
	l.t.Helper()
	snapshot, err := admin.NewClient(l.StandinSocket()).Inventory(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	return snapshot.MountTargetsOf(fileSystem)
}

// wantNothingLeft checks that the lab has left nothing on this machine.
func (l *testLab) wantNothingLeft() {
	for _, path := range []string{l.Dir, l.NetNSPath()} {
		if _, err := os.Lstat(path); err == nil {
			l.t.Errorf("%s is still there", path)
		}
	}
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), l.Dir+"/") {
			l.t.Errorf("a process is left: %s", strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		l.t.Errorf("reading mounts: %v", err)
	}
	if strings.Contains(string(mounts), l.NetNS()) {
		l.t.Errorf("a mount of %s is left", l.NetNS())
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
