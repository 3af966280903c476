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

// limit is how long the test waits for anything at most: emulated machines on a busy host are
// slow, and a wait that is met ends at once.
const limit = 15 * time.Minute

const labName = "e2e"

// keep is for people who want to look, or to run one scenario again.
var keep = flag.Bool("keep", false, "leave the lab up at the end")

// lab is the cluster that the test runs in, driven through the programs that people use.
type lab struct {
	*testing.T
	root  string // of the repository
	dir   string // of the lab; "" before it is up
	story sync.Once
}

// bringUp makes the lab, with the product's images.
func bringUp(t *testing.T) *lab {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, root: root}
	if !*keep {
		l.lab("down") // what a run that was killed may have left
		t.Cleanup(l.takeDown)
	}
	l.lab("up", "--audit")
	l.dir = filepath.Dir(strings.TrimSpace(l.lab("kubeconfig")))
	l.run("hack/images/lab")
	return l
}

// takeDown kills half of the lab's processes and then removes it: nothing may be left of a lab that
// was killed.
func (l *lab) takeDown() {
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
	l.wantNothingLeft()
}

// wantNothingLeft of the lab on this machine: no file, no process and no mount.
func (l *lab) wantNothingLeft() {
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

// in is the same lab in a subtest.
func (l *lab) in(t *testing.T) *lab {
	t.Helper()
	return &lab{T: t, root: l.root, dir: l.dir}
}

// run runs a program of the repository and returns what it printed on its standard output.
func (l *lab) run(program string, args ...string) string {
	l.Helper()
	out, told, err := l.start("", program, args)
	if err != nil {
		l.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, shortened(told))
	}
	return out
}

// try is run for a program that may fail, with a text as its standard input.
func (l *lab) try(stdin, program string, args ...string) (string, error) {
	l.Helper()
	out, _, err := l.start(stdin, program, args)
	return out, err
}

// tryKubectl is try for kubectl, with what it said on its standard error, too.
func (l *lab) tryKubectl(stdin string, args ...string) (string, error) {
	l.Helper()
	out, told, err := l.start(stdin, "bin/lab", append([]string{"kubectl", "--"}, args...))
	return out + told, err
}

func (l *lab) start(stdin, program string, args []string) (stdout, stderr string, err error) {
	l.Helper()
	// Cleanups run after the test's own context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.Context()), 4*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(l.root, program), args...)
	cmd.Dir = l.root
	cmd.Env = append(os.Environ(), "LAB_NAME="+labName)
	cmd.Stdin = strings.NewReader(stdin)
	var out, told bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &told
	begin := time.Now()
	err = cmd.Run()
	l.Logf("%s %s (%.1f s)\n%s%s", filepath.Base(program), strings.Join(args, " "), time.Since(begin).Seconds(),
		shortened(out.String()), shortened(told.String()))
	return out.String(), told.String(), err
}

// shortened keeps the log readable: an error is at the end of what a program says.
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

// wait is kubectl wait with the test's own limit.
func (l *lab) wait(namespace, condition string, objects ...string) {
	l.Helper()
	l.kubectl(append([]string{"-n", namespace, "wait", "--timeout=" + limit.String(), "--for=" + condition}, objects...)...)
}

// namespace makes one that goes at the end of the scenario, with everything in it.
func (l *lab) namespace(name string) string {
	l.Helper()
	l.kubectl("create", "namespace", name, "--save-config") // some are applied later
	l.Cleanup(func() {
		if out, err := l.tryKubectl("", "delete", "namespace", name, "--timeout="+limit.String()); err != nil {
			l.Errorf("namespace %s does not go: %v\n%s", name, err, out)
		}
	})
	l.wait(name, "create", "serviceaccount/default") // pods are refused before a controller has made it
	return name
}

// inPod runs a shell line in the pod user, again if it fails: a kubelet on a busy host may not answer
// in time.
func (l *lab) inPod(namespace, line string) {
	l.Helper()
	l.eventually("pod user of "+namespace+" to run "+line, func() string {
		if out, err := l.tryKubectl("", "-n", namespace, "exec", "user", "--", "sh", "-ec", line); err != nil {
			return fmt.Sprint(err, ": ", out)
		}
		return ""
	})
}

// awaitEvent waits until an event of an object has a text in its message. Events of what has no
// namespace are in default.
func (l *lab) awaitEvent(namespace, object, reason, text string) {
	l.Helper()
	l.eventually("the event "+reason+" of "+object, func() string {
		messages := l.kubectl("-n", namespace, "get", "events", "--field-selector", "reason="+reason+",involvedObject.name="+object,
			"-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		if !strings.Contains(messages, text) {
			return fmt.Sprintf("%q does not say %q", messages, text)
		}
		return ""
	})
}

// heard is the log of a pod, or why it cannot be had now.
func (l *lab) heard(namespace, pod string, args ...string) (log string, err error) {
	l.Helper()
	out, err := l.tryKubectl("", append([]string{"-n", namespace, "logs", pod}, args...)...)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), nil
}

// onNode runs a shell line on a node, which on a busy host may take a few tries to answer.
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

// eventually polls until check finds nothing missing.
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
