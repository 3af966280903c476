package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// labVolume is a volume of a lab that a pod keeps mounted on a node. The product must be installed as make demo does.
// What is measured is on the node, in the kubelet's folder of the volume.
type labVolume struct {
	program    string     // of the lab
	undo       [][]string // commands that leave the lab as it was, the last one first
	name       string     // of the volume
	fileSystem string
	path       string // of the volume on the server
	node       string
	folder     string      // of the volume, on the node
	targets    []labTarget // of its file system
}

// labTarget is a mount target, as the lab's program prints it.
type labTarget struct {
	ID           string        `json:"id"`
	FileSystemID string        `json:"fileSystemID"`
	Address      string        `json:"address"` // and port, of each family with a comma between
	Delay        time.Duration `json:"delay"`
	Plain        bool          `json:"plain"`
}

const (
	labNamespace = "bench-volume"

	// The pod only keeps the volume mounted.
	labClaim = `apiVersion: v1
kind: Namespace
metadata: {name: ` + labNamespace + `}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: ` + labNamespace + `}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
  storageClassName: efs-stunnel
`
	labPod = `apiVersion: v1
kind: Pod
metadata: {name: user, namespace: ` + labNamespace + `}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: registry.lab:5000/lab/toolbox:1
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: data}
`
)

// inLab has something done with a volume of the lab, and leaves the lab as it was, also after an interrupt.
func (b *bench) inLab(ctx context.Context, do func(*labVolume) error) (err error) {
	l := &labVolume{program: b.options.lab}
	defer func() {
		b.logf("  restoring the lab")
		err = errors.Join(err, l.restore(ctx))
	}()
	if err := l.setUp(ctx); err != nil {
		return err
	}
	return do(l)
}

// setUp has the volume mounted on a node of the lab, and nothing delayed.
func (l *labVolume) setUp(ctx context.Context) error {
	if err := l.startPod(ctx); err != nil {
		return err
	}
	var err error
	if l.node, err = l.kubectl(ctx, "", "get", "pod", "user", "-o", "jsonpath={.spec.nodeName}"); err != nil {
		return err
	}
	if l.name, err = l.kubectl(ctx, "", "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}"); err != nil {
		return err
	}
	output, err := l.kubectl(ctx, "", "get", "pv", l.name, "-o", "jsonpath={.metadata.labels.file_system_id} {.spec.nfs.path}")
	if err != nil {
		return err
	}
	l.fileSystem, l.path, _ = strings.Cut(output, " ")
	if l.folder, err = l.run(ctx, "", l.onNode(fmt.Sprintf(`grep -m 1 '^127.0.0.1:%s ' /proc/mounts | cut -d' ' -f2`, l.path))...); err != nil {
		return err
	}
	if l.folder == "" {
		return fmt.Errorf("node %s has no mount of %s", l.node, l.path)
	}
	return l.findTargets(ctx)
}

func (l *labVolume) startPod(ctx context.Context) error {
	l.undo = append(l.undo, kubectlCommand("delete", "namespace", labNamespace, "--ignore-not-found", "--timeout=5m"))
	for _, step := range []struct {
		input string
		args  []string
	}{
		{labClaim, []string{"apply", "-f", "-"}},
		{"", []string{"wait", "--for=create", "serviceaccount/default", "--timeout=1m"}}, // or the pod is refused
		{labPod, []string{"apply", "-f", "-"}},
		{"", []string{"wait", "--for=condition=Ready", "pod/user", "--timeout=10m"}},
	} {
		if _, err := l.kubectl(ctx, step.input, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// findTargets finds all mount targets of the file system: the tunnel may use any of them.
func (l *labVolume) findTargets(ctx context.Context) error {
	text, err := l.run(ctx, "", "efs", "status", "-o", "json")
	if err != nil {
		return err
	}
	var status struct {
		MountTargets []labTarget `json:"mountTargets"`
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return fmt.Errorf("reading the status of the lab's file systems: %w", err)
	}
	for _, target := range status.MountTargets {
		if target.FileSystemID == l.fileSystem {
			l.targets = append(l.targets, target)
			l.undo = append(l.undo, delayCommand(target.ID, target.Delay))
		}
	}
	if len(l.targets) == 0 {
		return fmt.Errorf("file system %s has no mount target in this lab", l.fileSystem)
	}
	return l.delay(ctx, 0)
}

// delay holds back what is sent in each direction.
func (l *labVolume) delay(ctx context.Context, each time.Duration) error {
	for _, target := range l.targets {
		if _, err := l.run(ctx, "", delayCommand(target.ID, each)...); err != nil {
			return err
		}
	}
	return nil
}

func delayCommand(target string, each time.Duration) []string {
	return []string{"efs", "update-mount-target", target, "--delay", each.String()}
}

// restore leaves the lab as it was, also after an interrupt.
func (l *labVolume) restore(ctx context.Context) error {
	var errs []error
	for _, command := range slices.Backward(l.undo) {
		_, err := l.run(context.WithoutCancel(ctx), "", command...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (l *labVolume) onNode(line string) []string {
	return []string{"exec", l.node, "--", "sh", "-c", line}
}

func (l *labVolume) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return l.run(ctx, input, kubectlCommand(args...)...)
}

func kubectlCommand(args ...string) []string {
	return append([]string{"kubectl", "--", "-n", labNamespace}, args...)
}

// stuckTimeout ends a command of a lab that does not answer any more. None of them takes as long.
const stuckTimeout = 12 * time.Minute

// run runs a command of the lab in a process group of its own: an interrupt at the terminal must not end what
// measures or restores.
func (l *labVolume) run(ctx context.Context, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stuckTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, &stderr)
	}
	return strings.TrimSpace(string(output)), nil
}
