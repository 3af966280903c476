// Package worker is the program of mount Jobs without its main function, so that tests can run
// it with the arguments of a real Job. Only cmd/mountjob links it.
package worker

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/operations"
	"gnuthought.com/efs-stunnel/pkg/api/requests"
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
	// CheckMount wants an NFS mount. It is no flag: without it a Job could work on an empty folder of its container.
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

type job struct {
	Program
	options options
	log     *slog.Logger
	leader  *leader
}

// do ends soon after its deadline, even if the file system hangs: the report can still say so then.
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

// hangTime is longer than a step of a healthy file system, and shorter than the pod's grace period.
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
		Used:         j.options.used,
		ReadOnly:     j.options.command == commandSurvey,
	})
}

// The commands.
const (
	commandRun     = "run"
	commandSweep   = "sweep"
	commandLedger  = "ledger"
	commandSurvey  = "survey"
	commandClone   = "clone"
	commandVersion = "version"
)

const operationsEnv = "MOUNTJOB_OPERATIONS"

// Defaults for running mountjob by hand; the manager passes everything that matters.
const (
	defaultOperations     = "/run/mountjob/operations.json"
	defaultTerminationLog = "/dev/termination-log"
	defaultDeadlineMargin = 30 * time.Second
)

type options struct {
	command        string
	fileSystemID   string
	aliases        []string
	used           bool
	directory      string
	operations     string // of run and clone only
	after          string // of survey only
	deadline       time.Duration
	margin         time.Duration
	terminationLog string
	logLevel       slog.Level
	logFormat      string
	// of run only: who has more operations, and how long to wait for them
	leader, leaderKey, leaderToken string
	linger                         time.Duration
	request                        requests.Request // of ledger only
}

func (o options) timeLimit() time.Duration { return o.deadline - o.margin }

// parseOptions returns errors of the user, and flag.ErrHelp after the help was written.
func parseOptions(args []string, getenv func(string) string, output io.Writer) (options, error) {
	o := options{command: commandRun, terminationLog: defaultTerminationLog}
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		o.command, args = args[0], args[1:]
	}
	switch o.command {
	case commandRun, commandSweep, commandSurvey, commandClone, commandLedger, commandVersion:
	default:
		return o, fmt.Errorf("there is no command %q: want %s, %s, %s, %s, %s or %s", o.command, commandRun, commandSweep, commandSurvey, commandClone, commandLedger, commandVersion)
	}
	flags := o.flags(getenv)
	if err := parse(flags, args, output); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("argument %q: %s takes flags only", flags.Arg(0), o.command)
	}
	return o, o.check()
}

// parse writes nothing but the help: package flag would write its errors with it, and ours are one line.
func parse(flags *flag.FlagSet, args []string, output io.Writer) error {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(output)
		fmt.Fprintf(output, "Flags of mountjob %s:\n", flags.Name())
		flags.PrintDefaults()
	}
	return err
}

func (o *options) flags(getenv func(string) string) *flag.FlagSet {
	flags := flag.NewFlagSet(o.command, flag.ContinueOnError)
	if o.command == commandVersion {
		return flags
	}
	flags.StringVar(&o.fileSystemID, "file-system-id", "", "the file system that must be mounted here")
	flags.Func("aliases", "`ids` that it may carry as a copy of another, with commas between", func(ids string) error {
		if ids != "" {
			o.aliases = strings.Split(ids, ",")
		}
		return nil
	})
	flags.BoolVar(&o.used, "used", false, "volumes are on it: refuse one without a marker, which is another disk")
	flags.StringVar(&o.directory, "directory", wellknown.MountJobMountPath, "where its root is mounted")
	flags.DurationVar(&o.deadline, "deadline", wellknown.DefaultMountJobTimeout, "when the pod is ended, counted from now")
	flags.DurationVar(&o.margin, "deadline-margin", defaultDeadlineMargin, "how long before that to stop and report")
	flags.StringVar(&o.terminationLog, "termination-log", defaultTerminationLog, "file for the report")
	flags.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "text", "text or json")
	if o.command == commandLedger {
		flags.Func("request", "what to list or to remove, as `JSON` of the plugin of kubectl", func(text string) (err error) {
			o.request, err = requests.DecodeRequest([]byte(text))
			return err
		})
	}
	if o.command == commandSurvey {
		flags.StringVar(&o.after, "after", "", "`path` of the last volume that an earlier survey has counted; default is none")
	}
	if o.command == commandRun {
		flags.StringVar(&o.leader, "leader", "", "`host:port` of the manager that has more operations; default is none")
		flags.StringVar(&o.leaderKey, "leader-key", "", "SHA-256 of its public key, in hex")
		flags.StringVar(&o.leaderToken, "leader-token", "", "file with the token that it accepts")
		flags.DurationVar(&o.linger, "linger", 0, "how long to wait for more operations")
	}
	if o.command == commandRun || o.command == commandClone {
		flags.StringVar(&o.operations, "operations", cmp.Or(getenv(operationsEnv), defaultOperations), "file with the operations as JSON; also from "+operationsEnv)
	}
	return flags
}

func (o options) check() error {
	if o.command == commandVersion {
		return nil
	}
	if err := o.checkIDs(); err != nil {
		return err
	}
	switch {
	case !filepath.IsAbs(o.directory):
		return fmt.Errorf("--directory %q: want an absolute path", o.directory)
	case (o.command == commandRun || o.command == commandClone) && o.operations == "":
		return errors.New("--operations is empty: want the file with the operations")
	case o.command == commandLedger && o.request.Do == "":
		return errors.New("--request is missing: want a request of the plugin of kubectl")
	case o.after != "" && operations.CheckPath(o.after) != nil:
		return fmt.Errorf("--after: %w", operations.CheckPath(o.after))
	case o.terminationLog == "":
		return errors.New("--termination-log is empty: want a file to write")
	case o.margin < 0:
		return fmt.Errorf("--deadline-margin %s: want 0s or more", o.margin)
	case o.deadline <= o.margin:
		return fmt.Errorf("--deadline %s: want more than --deadline-margin, which is %s", o.deadline, o.margin)
	case o.logFormat != "json" && o.logFormat != "text":
		return fmt.Errorf("--log-format %q: want text or json", o.logFormat)
	}
	return o.checkLeader()
}

func (o options) checkIDs() error {
	if o.fileSystemID == "" {
		return errors.New("--file-system-id is missing: want the id of the mounted file system")
	}
	for flag, ids := range map[string][]string{"--file-system-id": {o.fileSystemID}, "--aliases": o.aliases} {
		for _, id := range ids {
			if id == "" || strings.ContainsAny(id, " \t\r\n/,") {
				return fmt.Errorf("%s %q: want ids such as fs-0123456789abcdef0", flag, id)
			}
		}
	}
	return nil
}
