package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The part readahead: how fast a node of the lab reads large files through a tunnel, by the read-ahead of its
// mount. The product must be installed as make demo does. What is measured is on the node: a pod has the
// volume mounted, and readahead.pl reads in the kubelet's folder of it.

// readAheadLab drives a lab through its program.
type readAheadLab struct {
	program string
	undo    [][]string // commands that leave the lab as it was, the last one first
	node    string
	folder  string // of the volume, on the node
	setting string // of the mount's read-ahead, on the node
	targets []string
}

const (
	readAheadNamespace = "bench-read-ahead"
	// readAheadTotal is what all readers of a reading read together, in MiB, each to the end of its file. If they
	// stopped before, what was read ahead for them would not count.
	readAheadTotal = 256

	// The pod only keeps the volume mounted.
	readAheadClaim = `apiVersion: v1
kind: Namespace
metadata: {name: ` + readAheadNamespace + `}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: ` + readAheadNamespace + `}
spec:
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
  storageClassName: efs-stunnel
`
	readAheadPod = `apiVersion: v1
kind: Pod
metadata: {name: reader, namespace: ` + readAheadNamespace + `}
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

//go:embed readahead.pl
var readAheadProgram string

func (b *bench) measureReadAhead(ctx context.Context) (err error) {
	l := &readAheadLab{program: b.options.lab}
	defer func() {
		b.logf("  restoring the lab")
		err = errors.Join(err, l.restore(ctx))
	}()
	b.logf("read-ahead (load %.1f): writing files", loadNow())
	if err := l.setUp(ctx); err != nil {
		return err
	}
	var roundTrip time.Duration
	for _, r := range plannedReadings() {
		if r.RoundTrip != roundTrip {
			if err := l.delay(ctx, r.RoundTrip/2); err != nil {
				return err
			}
			roundTrip = r.RoundTrip
		}
		if err := l.read(ctx, &r); err != nil {
			return fmt.Errorf("reading with %s: %w", r, err)
		}
		b.logf("  %s: %s MiB/s", r, number(r.Rate))
		b.results.ReadAhead = append(b.results.ReadAhead, r)
	}
	return nil
}

// setUp has files on a node of the lab, and nothing delayed.
func (l *readAheadLab) setUp(ctx context.Context) error {
	if err := l.startPod(ctx); err != nil {
		return err
	}
	var err error
	if l.node, err = l.kubectl(ctx, "", "get", "pod", "reader", "-o", "jsonpath={.spec.nodeName}"); err != nil {
		return err
	}
	volume, err := l.kubectl(ctx, "", "get", "pvc", "data", "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return err
	}
	output, err := l.kubectl(ctx, "", "get", "pv", volume, "-o", "jsonpath={.metadata.labels.file_system_id} {.spec.nfs.path}")
	if err != nil {
		return err
	}
	fileSystem, path, _ := strings.Cut(output, " ")
	if err := l.findMount(ctx, path); err != nil {
		return err
	}
	if err := l.findTargets(ctx, fileSystem); err != nil {
		return err
	}
	return l.writeFiles(ctx)
}

func (l *readAheadLab) startPod(ctx context.Context) error {
	l.undo = append(l.undo, kubectlCommand("delete", "namespace", readAheadNamespace, "--ignore-not-found", "--timeout=5m"))
	for _, step := range []struct {
		input string
		args  []string
	}{
		{readAheadClaim, []string{"apply", "-f", "-"}},
		{"", []string{"wait", "--for=create", "serviceaccount/default", "--timeout=1m"}}, // or the pod is refused
		{readAheadPod, []string{"apply", "-f", "-"}},
		{"", []string{"wait", "--for=condition=Ready", "pod/reader", "--timeout=10m"}},
	} {
		if _, err := l.kubectl(ctx, step.input, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// findMount finds the mount of a path of the server on the node, and its read-ahead.
func (l *readAheadLab) findMount(ctx context.Context, path string) error {
	output, err := l.run(ctx, "", l.onNode(fmt.Sprintf(`folder=$(grep -m 1 '^127.0.0.1:%s ' /proc/mounts | cut -d' ' -f2) &&
setting=/sys/class/bdi/$(mountpoint -d "$folder")/read_ahead_kb && echo "$folder $setting $(cat "$setting")"`, path))...)
	if err != nil {
		return err
	}
	var before int
	if _, err := fmt.Sscan(output, &l.folder, &l.setting, &before); err != nil {
		return fmt.Errorf("the node's mount of %s is %q: want a folder, a setting and its value: %w", path, output, err)
	}
	// Mounts of other pods have the same superblock, which keeps the setting.
	l.undo = append(l.undo, l.onNode(fmt.Sprintf("echo %d > %s", before, l.setting)))
	return nil
}

// findTargets finds all mount targets of a file system: the tunnel may use any of them.
func (l *readAheadLab) findTargets(ctx context.Context, fileSystem string) error {
	text, err := l.run(ctx, "", "efs", "status", "-o", "json")
	if err != nil {
		return err
	}
	var status struct {
		MountTargets []struct {
			ID           string        `json:"id"`
			FileSystemID string        `json:"fileSystemID"`
			Delay        time.Duration `json:"delay"`
		} `json:"mountTargets"`
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return fmt.Errorf("reading the status of the lab's file systems: %w", err)
	}
	for _, target := range status.MountTargets {
		if target.FileSystemID == fileSystem {
			l.targets = append(l.targets, target.ID)
			l.undo = append(l.undo, delayCommand(target.ID, target.Delay))
		}
	}
	if len(l.targets) == 0 {
		return fmt.Errorf("file system %s has no mount target in this lab", fileSystem)
	}
	return l.delay(ctx, 0)
}

// delay holds back what is sent in each direction.
func (l *readAheadLab) delay(ctx context.Context, each time.Duration) error {
	for _, target := range l.targets {
		if _, err := l.run(ctx, "", delayCommand(target, each)...); err != nil {
			return err
		}
	}
	return nil
}

func delayCommand(target string, each time.Duration) []string {
	return []string{"efs", "update-mount-target", target, "--delay", each.String()}
}

func (l *readAheadLab) writeFiles(ctx context.Context) error {
	for _, readers := range []int{1, mostReaders} {
		_, err := l.run(ctx, "", l.onNode(fmt.Sprintf("for file in %s; do dd if=/dev/zero of=$file bs=1M count=%d conv=fsync status=none || exit; done",
			strings.Join(l.files(readers), " "), readAheadTotal/readers))...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *readAheadLab) files(readers int) (files []string) {
	for i := range readers {
		files = append(files, fmt.Sprintf("%s/%d-of-%d", l.folder, i+1, readers))
	}
	return files
}

// read has a reading done. It is not interrupted: the node would go on with it, and change the read-ahead after
// it was restored.
func (l *readAheadLab) read(ctx context.Context, r *reading) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	command := []string{"exec", l.node, "--", "perl", "-", l.setting, strconv.Itoa(r.ReadAhead), strconv.Itoa(r.Block << 10)}
	output, err := l.run(context.WithoutCancel(ctx), readAheadProgram, append(command, l.files(r.Readers)...)...)
	if err != nil {
		return err
	}
	return r.parse(output)
}

// restore leaves the lab as it was, also after an interrupt.
func (l *readAheadLab) restore(ctx context.Context) error {
	var errs []error
	for _, command := range slices.Backward(l.undo) {
		_, err := l.run(context.WithoutCancel(ctx), "", command...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (l *readAheadLab) onNode(line string) []string {
	return []string{"exec", l.node, "--", "sh", "-c", line}
}

func (l *readAheadLab) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return l.run(ctx, input, kubectlCommand(args...)...)
}

func kubectlCommand(args ...string) []string {
	return append([]string{"kubectl", "--", "-n", readAheadNamespace}, args...)
}

// stuckTimeout ends a command of a lab that does not answer any more. None of them takes as long.
const stuckTimeout = 12 * time.Minute

// run runs a command of the lab in a process group of its own: an interrupt at the terminal must not end what
// measures or restores.
func (l *readAheadLab) run(ctx context.Context, input string, args ...string) (string, error) {
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
