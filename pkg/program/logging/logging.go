// Package logging makes a program's logger, and has the Kubernetes libraries log through it.
package logging

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-multierror"
	"k8s.io/klog/v2"
)

// Formats of lines.
const (
	Text = "text" // key=value, which people read as it is
	JSON = "json" // one object a line
)

// New makes a logger.
func New(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: joined}
	if format == JSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Errors collects the errors of independent items of one pass, on one line. It returns nil if all are nil.
func Errors(errs ...error) error {
	return multierror.Append(&multierror.Error{ErrorFormat: onOneLine}, errs...).ErrorOrNil()
}

func onOneLine(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.ReplaceAll(strings.Join(texts, "\n"), "\n", "; ")
}

// joined writes an error and that of its clean-up as Errors does: errors.Join has each on a line of its own.
func joined(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		return slog.String(a.Key, onOneLine([]error{err}))
	}
	return a
}

// ForTunnel returns a logger that names the file system of a tunnel, and its access point if it has one.
func ForTunnel(log *slog.Logger, name string) *slog.Logger {
	fileSystem, accessPoint, found := strings.Cut(name, ".")
	log = log.With("fileSystem", fileSystem)
	if found {
		log = log.With("accessPoint", accessPoint)
	}
	return log
}

// UseForKubernetes has client-go and other libraries log through a logger, whatever they were given.
// It is for main: the setting is the process's. klog's verbosity n is slog's level -n, so that
// DEBUG shows V(4) and INFO shows V(0). Lines about an error that is known are left out, for
// those about itself, once, and libraries at every repetition.
func UseForKubernetes(log *slog.Logger, known func(error) bool) {
	klog.SetSlogLogger(slog.New(withoutKnown{log.Handler(), known}))
}

// withoutKnown drops lines about errors that are known.
type withoutKnown struct {
	slog.Handler
	known func(error) bool
}

func (h withoutKnown) Handle(ctx context.Context, line slog.Record) error {
	drop := false
	line.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		drop = ok && h.known(err)
		return !drop
	})
	if drop {
		return nil
	}
	return h.Handler.Handle(ctx, line)
}

func (h withoutKnown) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutKnown{h.Handler.WithAttrs(attrs), h.known}
}

func (h withoutKnown) WithGroup(name string) slog.Handler {
	return withoutKnown{h.Handler.WithGroup(name), h.known}
}

// ParseLevel reads a level in the words of slog or of Python's logging, in any case. Nothing is
// logged above ERROR, so CRITICAL is the same.
func ParseLevel(text string) (slog.Level, error) {
	switch strings.ToUpper(text) {
	case "DEBUG":
		return slog.LevelDebug, nil
	case "INFO":
		return slog.LevelInfo, nil
	case "WARN", "WARNING":
		return slog.LevelWarn, nil
	case "ERROR", "CRITICAL":
		return slog.LevelError, nil
	}
	return 0, errors.New("want DEBUG, INFO, WARNING, ERROR or CRITICAL")
}
