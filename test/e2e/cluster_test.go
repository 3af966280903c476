//go:build e2e || acceptance

package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gnuthought.com/efs-stunnel/test/e2e/report"
)

// limit is the timeout of every wait, long enough for emulated machines on a busy host.
var limit = flag.Duration("limit", 15*time.Minute, "how long to wait for anything")

// settings are the cluster under test, and the programs and names that the tests use.
type settings struct {
	root    string   // of the repository, where programs run
	client  []string // kubectl, with its first arguments
	env     []string // of programs, beside the test's own
	system  string   // the product's namespace
	class   string   // a storage class of the product
	image   string   // of pods: it has a shell
	prefix  string   // of the names of namespaces
	labels  string   // of namespaces, as key: value
	derived string   // first part of the names of classes, and value of the label runLabel

	// look says what the server has of a volume: "path", "trash", both, or "". It is nil where only pods see files.
	look        func(volume, fileSystem, path string) string
	sharedPoint string                               // FILE-SYSTEM::ACCESS-POINT for SharedVolumes, "" if there is none
	drainsNodes bool                                 // pods of others may be evicted
	evidence    func(namespaces []string) [][]string // the kubectl commands that show why a scenario failed
	interrupted <-chan struct{}                      // ends every wait but those of cleanups
}

// cluster is the cluster that a scenario uses, by kubectl only.
type cluster struct {
	*testing.T
	settings
	namespaces []string // of the scenario
	found      report.Scenario
	dumped     sync.Once
}

// withT returns the same cluster for a subtest.
func (c *cluster) withT(t *testing.T) *cluster {
	t.Helper()
	return &cluster{T: t, settings: c.settings}
}

// tryKubectl runs kubectl, which may fail, with a text as its standard input, and returns both of its
// outputs.
func (c *cluster) tryKubectl(stdin string, args ...string) (string, error) {
	c.Helper()
	out, errOut, err := c.start(stdin, c.client[0], slices.Concat(c.client[1:], args))
	return out + errOut, err
}

// start runs a program in the repository's root.
func (c *cluster) start(stdin, program string, args []string) (stdout, stderr string, err error) {
	c.Helper()
	ctx, cancel := c.commandContext()
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = c.root
	cmd.Env = append(os.Environ(), c.env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begin := time.Now()
	err = cmd.Run()
	c.Logf("%s %s (%.1f s)\n%s%s", filepath.Base(program), strings.Join(args, " "), time.Since(begin).Seconds(),
		shortened(out.String()), shortened(errOut.String()))
	return out.String(), errOut.String(), err
}

// commandContext does not end with the test's own context, after which cleanups run.
func (c *cluster) commandContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 4**limit)
	go func() {
		select {
		case <-c.interruption():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (c *cluster) interruption() <-chan struct{} {
	if c.Context().Err() != nil {
		return nil // a cleanup
	}
	return c.interrupted
}

// shortened cuts the middle: errors are at the end of a program's output.
func shortened(text string) string {
	const enough = 3000
	if len(text) <= enough {
		return text
	}
	return text[:enough/2] + "\n…\n" + text[len(text)-enough/2:]
}

func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	out, errOut, err := c.start("", c.client[0], slices.Concat(c.client[1:], args))
	if err != nil {
		c.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, shortened(errOut))
	}
	return strings.TrimSpace(out)
}

// plugin runs the plugin of kubectl, as kubectl does, and returns its output and exit code.
func (c *cluster) plugin(args ...string) (out string, code int) {
	c.Helper()
	out, _, err := c.start("", "bin/kubectl-efs_stunnel", args)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return out, exit.ExitCode()
	case err != nil:
		c.Fatal(err)
	}
	return out, 0
}

// apply applies objects to a namespace. Manifests name the lab's image, and have the cluster's.
func (c *cluster) apply(namespace, objects string) {
	c.Helper()
	if out, err := c.tryKubectl(strings.ReplaceAll(objects, labImage, c.image), "-n", namespace, "apply", "-f", "-"); err != nil {
		c.Fatalf("applying objects: %v\n%s", err, out)
	}
}

// wait is kubectl wait with the test's timeout.
func (c *cluster) wait(namespace, condition string, objects ...string) {
	c.Helper()
	c.kubectl(append([]string{"-n", namespace, "wait", "--timeout=" + limit.String(), "--for=" + condition}, objects...)...)
}

// namespace creates a namespace that is deleted at the end of the scenario.
func (c *cluster) namespace(name string) string {
	c.Helper()
	name = c.prefix + name
	object := fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, c.labels)
	if out, err := c.tryKubectl(object, "create", "--save-config", "-f", "-"); err != nil { // scenarios may apply it later
		c.Fatalf("creating namespace %s: %v\n%s", name, err, out)
	}
	c.namespaces = append(c.namespaces, name)
	c.Cleanup(func() {
		if out, err := c.tryKubectl("", "delete", "namespace", name, "--timeout="+limit.String()); err != nil {
			c.Errorf("namespace %s does not go: %v\n%s", name, err, out)
		}
	})
	c.wait(name, "create", "serviceaccount/default") // pods are refused without it
	return name
}

// inPod runs a shell line in the pod user, and repeats it if it fails: a kubelet on a busy host may not
// respond in time.
func (c *cluster) inPod(namespace, line string) {
	c.Helper()
	c.eventually("pod user of "+namespace+" to run "+line, func() string {
		if out, err := c.tryKubectl("", "-n", namespace, "exec", "user", "--", "sh", "-ec", line); err != nil {
			return fmt.Sprint(err, ": ", out)
		}
		return ""
	})
}

// waitForEvent waits until an event of an object has a text in its message. Events of objects without a
// namespace are in default.
func (c *cluster) waitForEvent(namespace, object, reason, text string) {
	c.Helper()
	c.eventually("the event "+reason+" of "+object, func() string {
		messages := c.kubectl("-n", namespace, "get", "events", "--field-selector", "reason="+reason+",involvedObject.name="+object,
			"-o", `jsonpath={range .items[*]}{.message}{"\n"}{end}`)
		if !strings.Contains(messages, text) {
			return fmt.Sprintf("%q lacks %q", messages, text)
		}
		return ""
	})
}

// evict ends a pod, unless a PodDisruptionBudget forbids it.
func (c *cluster) evict(namespace, pod string) {
	c.Helper()
	eviction := fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q, "namespace": %q}}`, pod, namespace)
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", namespace, pod)
	if out, err := c.tryKubectl(eviction, "create", "--raw", path, "-f", "-"); err != nil {
		c.Fatalf("evicting %s: %v\n%s", pod, err, out)
	}
}

// podLog returns the log of a pod, or why it cannot be read now.
func (c *cluster) podLog(namespace, pod string, args ...string) (log string, err error) {
	c.Helper()
	out, err := c.tryKubectl("", append([]string{"-n", namespace, "logs", pod}, args...)...)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(out), nil
}

// eventually polls until check returns "".
func (c *cluster) eventually(what string, check func() (missing string)) {
	c.Helper()
	deadline := time.NewTimer(*limit)
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
		case <-c.interruption():
			c.Fatalf("interrupted while waiting for %s: %s", what, missing)
		case <-deadline.C:
			c.Fatalf("waiting for %s: %s", what, missing)
		}
	}
}
