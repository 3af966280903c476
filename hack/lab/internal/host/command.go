// Package host checks and uses the machine on which the lab runs: its programs, packages, memory, disk
// and devices.
package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Run runs a program to its end. Its error has the last lines of the program's output.
func Run(ctx context.Context, name string, args ...string) error {
	return RunTo(ctx, io.Discard, name, args...)
}

// RunTo runs like Run, and also writes the program's output to w.
func RunTo(ctx context.Context, w io.Writer, name string, args ...string) error {
	return RunCommand(exec.CommandContext(ctx, name, args...), w)
}

// RunCommand runs, like RunTo, a command with its own folder or environment.
func RunCommand(cmd *exec.Cmd, w io.Writer) error {
	var tail tailWriter
	out := io.MultiWriter(w, &tail)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running %s: %w: %s", strings.Join(shorten(cmd.Args), " "), err, tail.lines())
	}
	return nil
}

// shorten keeps an error message readable.
func shorten(args []string) []string {
	const most = 6
	if len(args) <= most {
		return args
	}
	return append(args[:most:most], "…")
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

// lines joins the last few lines in one.
func (t *tailWriter) lines() string {
	const most = 4
	all := strings.Split(strings.TrimSpace(t.buf.String()), "\n")
	return strings.Join(all[max(0, len(all)-most):], "; ")
}
