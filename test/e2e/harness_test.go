//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const labName = "e2e"

// ipv6 has nodes, pods, Services and mount targets with addresses of IPv6 only.
var ipv6 = flag.Bool("ipv6", false, "have a lab with IPv6 only")

// keep leaves the lab for a look at it, or for one more scenario.
var keep = flag.Bool("keep", false, "leave the lab up at the end")

// lab is a cluster whose nodes and file systems the test reaches, too.
type lab struct {
	*cluster
	dir string // of the lab; "" before it is up
}

// setUp starts the lab and builds the product's images.
func setUp(t *testing.T) *lab {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{cluster: &cluster{T: t, settings: settings{
		root: root, client: []string{"bin/lab", "kubectl", "--"}, env: []string{"LAB_NAME=" + labName},
		system: system, class: class, image: labImage, derived: labName, drainsNodes: true, evidence: wholeCluster,
	}}}
	l.look = func(volume, fileSystem, path string) string { return directory{l, volume, fileSystem, path}.found() }
	if !*keep {
		l.lab("down") // of a run that was killed
		t.Cleanup(l.tearDown)
	}
	l.lab("up", "--audit", fmt.Sprintf("--ipv6-only=%t", *ipv6))
	kubeconfig := strings.TrimSpace(l.lab("kubeconfig"))
	l.dir, l.env = filepath.Dir(kubeconfig), append(l.env, "KUBECONFIG="+kubeconfig)
	l.run("hack/images/lab")
	return l
}

// tearDown kills half of the lab's processes before it removes the lab: nothing may be left then,
// either.
func (l *lab) tearDown() {
	l.Helper()
	var parts []struct{ PID int }
	if out, err := l.try("bin/lab", "status", "-o", "json"); err == nil { // it may not have come up
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

// withT returns the same lab for a subtest.
func (l *lab) withT(t *testing.T) *lab {
	t.Helper()
	return &lab{cluster: l.cluster.withT(t), dir: l.dir}
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

// try is run for a program that may fail.
func (l *lab) try(program string, args ...string) (string, error) {
	l.Helper()
	out, _, err := l.start("", program, args)
	return out, err
}

func (l *lab) lab(args ...string) string {
	l.Helper()
	return l.run("bin/lab", args...)
}

// onNode runs a shell line on a node, and repeats it if it fails, as it may on a busy host.
func (l *lab) onNode(node, line string) (out string) {
	l.Helper()
	l.eventually(node+" to answer", func() string {
		var err error
		if out, err = l.try("bin/lab", "exec", node, "--", "sh", "-c", line); err != nil {
			return err.Error()
		}
		return ""
	})
	return strings.TrimSpace(out)
}

// wholeCluster returns the commands that show what a lab does.
func wholeCluster([]string) [][]string {
	return [][]string{
		{"get", "nodes,pods,pvc,pv,jobs", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", "efs-stunnel", "get", "configmap", "efs-stunnel", "-o", "yaml"},
		{"-n", "efs-stunnel", "logs", "-l", "app.kubernetes.io/component=manager", "--tail=60", "--prefix"},
		{"-n", "efs-stunnel", "logs", "-l", "app.kubernetes.io/component=node-agent", "--all-containers", "--tail=40", "--prefix"},
	}
}
