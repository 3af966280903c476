// Package worker is the program of mount Jobs without its main function, so that tests can run
// it with the arguments of a real Job. Only cmd/mountjob links it.
package worker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// Program is mountjob with what it uses of its container, which tests replace.
type Program struct {
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Now            func() time.Time
	// CheckMount makes sure that a directory is an NFS mount. It is no flag: a Job that skipped
	// it would work on an empty directory of its own container.
	CheckMount func(directory string) error
	// Progress, if not nil, is called after each operation of a batch. Tests end the program there.
	Progress func(done int)
}

// Run carries out the command of the arguments, and returns the exit code. When ctx ends, it stops
// between two steps, reports, and returns.
func (p Program) Run(ctx context.Context, args []string) int {
	o, err := parseOptions(args, p.Getenv, p.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitDone
	}
	if err != nil {
		return p.usage(o, err)
	}
	if o.command == commandVersion {
		fmt.Fprintln(p.Stdout, "mountjob", buildinfo.Read())
		return exitDone
	}
	j := job{Program: p, options: o, log: newLogger(p.Stderr, o), leader: newLeader(o)}
	j.log = j.log.With("fileSystem", o.fileSystemID)
	j.log.Info("mountjob started", "version", buildinfo.Read().String())
	if err := j.do(ctx); err != nil {
		j.log.Error("job failed", "err", err)
		return exitFailed
	}
	return exitDone
}

// usage reports wrong arguments, also as the termination message: "kubectl describe pod" shows it.
func (p Program) usage(o options, err error) int {
	line := fmt.Sprintf("mountjob: %v", err)
	fmt.Fprintln(p.Stderr, line)
	if _, err := os.Stat(o.terminationLog); err == nil { // not when it is run by hand
		_ = writeReport(o.terminationLog, []byte(line)) // the line is in the log anyway
	}
	return exitUsage
}

func newLogger(w io.Writer, o options) *slog.Logger {
	handling := &slog.HandlerOptions{Level: o.logLevel}
	if o.logFormat == "text" {
		return slog.New(slog.NewTextHandler(w, handling))
	}
	return slog.New(slog.NewJSONHandler(w, handling))
}

// writeReport writes the termination message, and replaces an earlier one.
func writeReport(path string, report []byte) error {
	report = report[:min(len(report), wellknown.MaxTerminationMessageBytes)]
	if err := os.WriteFile(path, report, 0o644); err != nil {
		return fmt.Errorf("writing the termination message: %w", err)
	}
	return nil
}

// job is one run of one command.
type job struct {
	Program
	options options
	log     *slog.Logger
	leader  *leader
}

// do ends soon after its deadline, even if the file system hangs: a report that says so is better
// than one that is missing because the pod was killed.
func (j job) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, j.options.timeLimit())
	defer cancel()
	worked := make(chan error, 1)
	go func() { worked <- j.work(ctx) }()
	select {
	case err := <-worked:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-worked:
		return err
	case <-time.After(hangTime):
		return j.withoutReport(errHung)
	}
}

// hangTime is longer than any step of a healthy file system takes, and shorter than the pod's grace
// period.
const hangTime = 15 * time.Second

var errHung = errors.New("the file system did not answer: check the efs-stunnel pod of the node and the mount target")

func (j job) work(ctx context.Context) error {
	switch j.options.command {
	case commandSweep:
		return j.task(ctx, j.sweep)
	case commandSurvey:
		return j.task(ctx, j.survey)
	case commandClone:
		return j.clone(ctx)
	case commandLedger:
		return j.answerRequest(ctx)
	default:
		return j.run(ctx)
	}
}

// open checks the mount before it opens the file system there.
func (j job) open(ctx context.Context) (*fsroot.FileSystem, error) {
	if err := j.CheckMount(j.options.directory); err != nil {
		return nil, err
	}
	return fsroot.Open(ctx, j.options.directory, fsroot.Options{
		FileSystemID: j.options.fileSystemID,
		Aliases:      j.options.aliases,
		ReadOnly:     j.options.command == commandSurvey,
	})
}
