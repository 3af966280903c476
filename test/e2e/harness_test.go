//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit is the timeout of every wait, long enough for emulated machines on a busy host.
const limit = 15 * time.Minute

const labName = "e2e"

// keep leaves the lab for a look at it, or for one more scenario.
var keep = flag.Bool("keep", false, "leave the lab up at the end")

// lab is the cluster of the test, which runs the programs that people use.
type lab struct {
	*testing.T
	root   string // of the repository
	dir    string // of the lab; "" before it is up
	dumped sync.Once
}

// setUp starts the lab and builds the product's images.
func setUp(t *testing.T) *lab {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, root: root}
	if !*keep {
		l.lab("down") // of a run that was killed
		t.Cleanup(l.tearDown)
	}
	l.lab("up", "--audit")
	l.dir = filepath.Dir(strings.TrimSpace(l.lab("kubeconfig")))
	l.run("hack/images/lab")
	return l
}

// tearDown kills half of the lab's processes before it removes the lab: nothing may be left then,
// either.
func (l *lab) tearDown() {
	l.Helper()
	var parts []struct{ PID int }
	if out, err := l.try("", "bin/lab", "status", "-o", "json"); err == nil { // it may not have come up
		if err := json.Unmarshal([]byte(out), &parts); err != nil {
			l.Error(err)
		}
	}
	for i, part := range parts {
		if part.PID == 0 || i%2 == 0 {
			continue
		}
		if err := syscall.Kill(part.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			l.Errorf("killing process %d of the lab: %v", part.PID, err)
		}
	}
	l.lab("down")
	l.expectNothingLeft()
}

// expectNothingLeft expects no file, process or mount of the lab on this machine.
func (l *lab) expectNothingLeft() {
	l.Helper()
	network := "efs-lab-" + labName
	for _, path := range []string{l.dir, "/run/netns/" + network} {
		if _, err := os.Lstat(path); err == nil && path != "" {
			l.Errorf("%s is left", path)
		}
	}
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		l.Fatal(err)
	}
	for _, file := range commands {
		line, err := os.ReadFile(file) // fails for a process that has just ended
		if err == nil && l.dir != "" && strings.Contains(string(line), l.dir+"/") {
			l.Errorf("a process is left: %s", strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		l.Fatal(err)
	}
	if strings.Contains(string(mounts), network) {
		l.Errorf("a mount of %s is left", network)
	}
}

// withT is the same lab for a subtest.
func (l *lab) withT(t *testing.T) *lab {
	t.Helper()
	return &lab{T: t, root: l.root, dir: l.dir}
}

// run runs a program of the repository and returns what it printed on its standard output.
func (l *lab) run(program string, args ...string) string {
	l.Helper()
	out, errOut, err := l.start("", program, args)
	if err != nil {
		l.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, shortened(errOut))
	}
	return out
}

// try is run for a program that may fail, with a text as its standard input.
func (l *lab) try(stdin, program string, args ...string) (string, error) {
	l.Helper()
	out, _, err := l.start(stdin, program, args)
	return out, err
}

// tryKubectl is try for kubectl, with its standard error, too.
func (l *lab) tryKubectl(stdin string, args ...string) (string, error) {
	l.Helper()
	out, errOut, err := l.start(stdin, "bin/lab", append([]string{"kubectl", "--"}, args...))
	return out + errOut, err
}

func (l *lab) start(stdin, program string, args []string) (stdout, stderr string, err error) {
	l.Helper()
	// Cleanups run after the end of the test's own context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), 4*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(l.root, program), args...)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "LAB_NAME="+labName)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begin := time.Now()
	err = cmd.Run()
	l.Logf("%s %s (%.1f s)\n%s%s", filepath.Base(program), strings.Join(args, " "), time.Since(begin).Seconds(),
		shortened(out.String()), shortened(errOut.String()))
	return out.String(), errOut.String(), err
}

// shortened cuts the middle: errors are at the end of a program's output.
func shortened(text string) string {
	const enough = 3000
	if len(text) <= enough {
		return text
	}
	return text[:enough/2] + "\n…\n" + text[len(text)-enough/2:]
}

func (l *lab) lab(args ...string) string {
	l.Helper()
	return l.run("bin/lab", args...)
}

func (l *lab) kubectl(args ...string) string {
	l.Helper()
	return strings.TrimSpace(l.lab(append([]string{"kubectl", "--"}, args...)...))
}

// apply applies objects to a namespace.
func (l *lab) apply(namespace, objects string) {
	l.Helper()
	if out, err := l.tryKubectl(objects, "-n", namespace, "apply", "-f", "-"); err != nil {
		l.Fatalf("applying objects: %v\n%s", err, out)
	}
}

// wait is kubectl wait with the test's timeout.
func (l *lab) wait(namespace, condition string, objects ...string) {
	l.Helper()
	l.kubectl(append([]string{"-n", namespace, "wait", "--timeout=" + limit.String(), "--for=" + condition}, objects...)...)
}

// namespace creates a namespace that is deleted at the end of the scenario.
func (l *lab) namespace(name string) string {
	l.Helper()
	l.kubectl("create", "namespace", name, "--save-config") // scenarios may apply it later
	l.Cleanup(func() {
		if out, err := l.tryKubectl("", "delete", "namespace", name, "--timeout="+limit.String()); err != nil {
			l.Errorf("namespace %s does not go: %v\n%s", name, err, out)
		}
	})
	l.wait(name, "create", "serviceaccount/default") // pods are refused without it
	return name
}

// inPod runs a shell line in the pod user, and repeats it if it fails: a kubelet on a busy host may not
// respond in time.
func (l *lab) inPod(namespace, line string) {
	l.Helper()
	l.eventually("pod user of "+namespace+" to run "+line, func() string {
		if out, err := l.tryKubectl("", "-n", namespace, "exec", "user", "--", "sh", "-ec", line); err != nil {
			return fmt.Sprint(err, ": ", out)
		}
		return ""
	})
}

// waitForEvent waits until an event of an object has a text in its message. Events of objects without a
// namespace are in default.
func (l *lab) waitForEvent(namespace, object, reason, text string) {
	l.Helper()
	l.eventually("the event "+reason+" of "+object, func() string {
		messages := l.kubectl("-n", namespace, "get", "events", "--field-selector", "reason="+reason+",involvedObject.name="+object,
			"-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		if !strings.Contains(messages, text) {
			return fmt.Sprintf("%q lacks %q", messages, text)
		}
		return ""
	})
}

// podLog returns the log of a pod, or why it cannot be read now.
func (l *lab) podLog(namespace, pod string, args ...string) (log string, err error) {
	l.Helper()
	out, err := l.tryKubectl("", append([]string{"-n", namespace, "logs", pod}, args...)...)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), nil
}

// onNode runs a shell line on a node, and repeats it if it fails, as it may on a busy host.
func (l *lab) onNode(node, line string) (out string) {
	l.Helper()
	l.eventually(node+" to answer", func() string {
		var err error
		if out, err = l.try("", "bin/lab", "exec", node, "--", "sh", "-c", line); err != nil {
			return err.Error()
		}
		return ""
	})
	return strings.TrimSpace(out)
}

// eventually polls until check returns "".
func (l *lab) eventually(what string, check func() (missing string)) {
	l.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		missing := check()
		if missing == "" {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			l.Fatalf("waiting for %s: %s", what, missing)
		}
	}
}
