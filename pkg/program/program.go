// Package program has what the project's long-running programs have in common: exit codes, signals, help
// and the settings of logs. It links neither the Kubernetes API nor net/http: the supervisor is small.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

// Exit codes.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Context returns a context that ends with the first SIGINT or SIGTERM. The second one kills the process.
func Context() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// ExitWithout returns the exit code of a program whose settings were not read because of an error, after
// printing the help, if that was requested, or the error.
func ExitWithout(set *settings.Set, err error, usage string, stdout, stderr io.Writer) int {
	if errors.Is(err, settings.ErrHelp) {
		fmt.Fprintf(stdout, "Usage:\n%s%s", usage, set.Help())
		return ExitDone
	}
	fmt.Fprintf(stderr, "%s: %v\n", set.Program(), err)
	return ExitUsage
}

// Log is the settings of a program's log.
type Log struct {
	Level  slog.Level
	Format string
}

// Add adds the settings to a group.
func (l *Log) Add(g *settings.Group) {
	l.Format = logging.Text
	g.Add(settings.Parsed(&l.Level, "level", logging.ParseLevel, slog.Level.String), "log-level", "LOGGING_LEVEL",
		"lowest `level` that is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL")
	g.Add(settings.OneOf(&l.Format, "format", logging.Text, logging.JSON), "log-format", "",
		"`format` of log lines: text or json")
}

// New returns a logger.
func (l Log) New(w io.Writer) *slog.Logger {
	return logging.New(w, l.Format, l.Level)
}
