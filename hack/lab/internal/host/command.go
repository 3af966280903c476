// Package host is the machine below the lab: its programs, packages, memory,
// disk and devices.
package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Run runs a program to its end. Its error carries the program's last words.
func Run(ctx context.Context, name string, args ...string) error {
	return RunTo(ctx, io.Discard, name, args...)
}

// RunTo is Run with the program's whole output also written to w.
func RunTo(ctx context.Context, w io.Writer, name string, args ...string) error {
	return RunCommand(exec.CommandContext(ctx, name, args...), w)
}

// RunCommand is RunTo for a command with a folder or environment of its own.
func RunCommand(cmd *exec.Cmd, w io.Writer) error {
	var tail tailWriter
	out := io.MultiWriter(w, &tail)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(shorten(cmd.Args), " "), err, tail.lines())
	}
	return nil
}

// shorten keeps a message readable; long command lines are in the logs.
func shorten(args []string) []string {
	const most = 6
	if len(args) <= most {
		return args
	}
	return append(append([]string{}, args[:most]...), "…")
}

// tailWriter keeps the end of what is written to it.
type tailWriter struct{ buf bytes.Buffer }

func (t *tailWriter) Write(p []byte) (int, error) {
	const keep = 4096
	t.buf.Write(p)
	if extra := t.buf.Len() - keep; extra > 0 {
		t.buf.Next(extra)
	}
	return len(p), nil
}

// lines gives the last few lines in one.
func (t *tailWriter) lines() string {
	const most = 4
	all := strings.Split(strings.TrimSpace(t.buf.String()), "\n")
	return strings.Join(all[max(0, len(all)-most):], "; ")
}
