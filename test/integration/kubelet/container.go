package kubelet

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/mountjobs"
	"gnuthought.com/efs-stunnel/pkg/worker"
)

// killed is the exit code of a process that SIGKILL has ended.
const killed = 137

// runContainer runs the program and writes the pod's last status, as the behavior says.
func (p *pod) runContainer(box sandbox) error {
	args, terminationLog, err := p.arguments(box)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := p.patchStatus(p.withContainer(corev1.PodRunning, running(since))); err != nil {
		return err
	}
	run := Run{
		Job: p.object.Labels["batch.kubernetes.io/job-name"], Pod: p.object.Name, Node: p.node,
		Operations: box.operations(mountjobs.OperationsFile),
	}
	if p.behavior.Before != nil {
		p.behavior.Before(p.exists)
	}
	run.ExitCode, run.Log = p.runProgram(args)
	run.Message, err = terminationMessage(terminationLog)
	if err != nil {
		return err
	}
	p.record(run)
	return p.reportEnd(since, run)
}

// arguments returns the arguments of the container, with its paths translated to this machine's. The program runs
// in this process, so an absolute path outside of the pod's volumes is an error.
func (p *pod) arguments(box sandbox) (args []string, terminationLog string, err error) {
	container := p.object.Spec.Containers[0]
	if !slices.Equal(container.Command, []string{mountjobs.Program}) || len(p.object.Spec.Containers) != 1 {
		return nil, "", fmt.Errorf("its command is %q in %d containers, not %s in one", container.Command, len(p.object.Spec.Containers), mountjobs.Program)
	}
	onMount := false
	for _, arg := range container.Args {
		if strings.HasPrefix(arg, "--after=") { // a path on the file system
			args = append(args, arg)
			continue
		}
		translated, ok := box.translate(arg)
		if _, value, _ := strings.Cut(arg, "="); !ok && filepath.IsAbs(value) {
			return nil, "", fmt.Errorf("its argument %s is outside of its volumes", arg)
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

// runProgram signals the program when the pod is deleted, or when the behavior says so.
func (p *pod) runProgram(args []string) (code int32, log string) {
	running := p.running
	if p.behavior.Ending == Hung {
		running = context.WithoutCancel(running)
	}
	ctx, signal := context.WithCancel(running)
	defer signal()
	if p.behavior.Ending != Natural && p.behavior.Operations == 0 {
		signal()
	}
	var output bytes.Buffer
	program := worker.Program{
		Stdout: &output, Stderr: &output,
		Getenv:     func(string) string { return "" },
		Now:        time.Now,
		CheckMount: func(string) error { return nil }, // it is a folder of the test
		Progress: func(done int) {
			if p.behavior.Ending != Natural && done == p.behavior.Operations {
				signal()
			}
		},
	}
	return int32(program.Run(ctx, args)), output.String()
}

// terminationMessage is cut to what the kubelet reads.
func terminationMessage(file string) (string, error) {
	text, err := os.ReadFile(file)
	return string(text[:min(len(text), wellknown.MaxTerminationMessageBytes)]), err
}

// reportEnd writes the pod's last status and waits for its deletion.
func (p *pod) reportEnd(since time.Time, run Run) error {
	code, message := run.ExitCode, run.Message
	switch p.behavior.Ending {
	case Vanished:
		return p.remove()
	case Hung:
		if err := p.hang(); err != nil {
			return err
		}
		code, message = killed, ""
	case Killed:
		code, message = killed, ""
	case Natural, Terminated:
	}
	if err := p.patchStatus(p.ended(since, code, message)); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return p.waitForDeletion()
}

// hang lasts until the test ends it, also while the pod is being deleted.
func (p *pod) hang() error {
	select {
	case <-p.behavior.Until:
		return nil
	case <-p.exists.Done():
		return p.exists.Err()
	}
}
