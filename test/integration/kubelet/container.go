package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"gnuthought.com/efs-stunnel/pkg/mountjob"
	"gnuthought.com/efs-stunnel/pkg/mountjob/directories"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// killed is the exit code of a process that was ended by SIGKILL.
const killed = 137

// runContainer runs the program and tells the cluster how it ended, as the fate wants it told.
func (l *life) runContainer(box sandbox) error {
	args, terminationLog, err := l.arguments(box)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := l.patchStatus(l.withContainer(corev1.PodRunning, running(since))); err != nil {
		return err
	}
	run := Run{
		Job: l.pod.Labels["batch.kubernetes.io/job-name"], Pod: l.pod.Name, Node: l.node,
		Args: l.pod.Spec.Containers[0].Args, Operations: box.operations(mountjobs.OperationsFile),
		Directory: box.mounts[wellknown.MountJobMountPath],
	}
	l.hook(l.fate.Before, run)
	run.ExitCode, run.Log = l.runProgram(args)
	run.Message, err = terminationMessage(terminationLog)
	if err != nil {
		return err
	}
	l.record(run)
	l.hook(l.fate.After, run)
	return l.tellEnd(since, run)
}

func (l *life) hook(call func(context.Context, Run), run Run) {
	if call != nil {
		call(l.exists, run)
	}
}

// arguments are those of the container, with its paths as they are here. The program runs in
// this process, so none may be left that names a path of the machine itself.
func (l *life) arguments(box sandbox) (args []string, terminationLog string, err error) {
	container := l.pod.Spec.Containers[0]
	if !slices.Equal(container.Command, []string{mountjobs.Program}) || len(l.pod.Spec.Containers) != 1 {
		return nil, "", fmt.Errorf("its command is %q in %d containers, not %s in one", container.Command, len(l.pod.Spec.Containers), mountjobs.Program)
	}
	onMount := false
	for _, arg := range container.Args {
		translated, ok := box.translate(arg)
		if _, value, _ := strings.Cut(arg, "="); !ok && filepath.IsAbs(value) {
			return nil, "", fmt.Errorf("its argument %s is on none of its volumes", arg)
		}
		onMount = onMount || ok && strings.HasPrefix(arg, "--directory=")
		args = append(args, translated)
	}
	if !onMount {
		return nil, "", fmt.Errorf("its arguments %q name no directory", container.Args)
	}
	terminationLog = filepath.Join(box.own, "termination-log")
	args = append(args, "--termination-log="+terminationLog)
	return args, terminationLog, os.WriteFile(terminationLog, nil, 0o600)
}

// runProgram ends with a signal when the pod shall end, or when the fate says so.
func (l *life) runProgram(args []string) (code int32, log string) {
	wanted := l.wanted
	if l.fate.Ending == Hung {
		wanted = context.WithoutCancel(wanted)
	}
	ctx, signal := context.WithCancel(wanted)
	defer signal()
	if l.fate.Ending != Natural && l.fate.Operations == 0 {
		signal()
	}
	var output bytes.Buffer
	program := mountjob.Program{
		Stdout: &output, Stderr: &output,
		Getenv:     func(string) string { return "" },
		Now:        time.Now,
		CheckMount: l.checkMount,
		Progress: func(done, _ int) {
			if l.fate.Ending != Natural && done == l.fate.Operations {
				signal()
			}
		},
	}
	return int32(program.Run(ctx, args)), output.String()
}

// checkMount trusts a folder of the test, because it was found through volume and tunnel.
func (l *life) checkMount(directory string) error {
	if l.fate.CheckMount {
		return directories.CheckNFS(directory)
	}
	return nil
}

// terminationMessage has at most what kubelet reads.
func terminationMessage(file string) (string, error) {
	text, err := os.ReadFile(file)
	return string(text[:min(len(text), wellknown.MaxTerminationMessageBytes)]), err
}

// tellEnd writes the pod's last status and waits for its deletion.
func (l *life) tellEnd(since time.Time, run Run) error {
	code, message := run.ExitCode, run.Message
	switch l.fate.Ending {
	case Vanished:
		return l.remove()
	case Hung:
		if err := l.hang(); err != nil {
			return err
		}
		code, message = killed, ""
	case Killed:
		code, message = killed, ""
	case Natural, Terminated:
	}
	status := l.ended(since, code, message)
	if errors.Is(context.Cause(l.wanted), errDeadline) && code != 0 {
		l.blameDeadline(&status)
	}
	if err := l.patchStatus(status); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.awaitDeletion()
}

// hang lasts until the test ends it, whatever happens to the pod.
func (l *life) hang() error {
	select {
	case <-l.fate.Until:
		return nil
	case <-l.exists.Done():
		return l.exists.Err()
	}
}
