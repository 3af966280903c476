package supervise

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"gnuthought.com/efs-stunnel/pkg/stunnelcfg"
)

const (
	queryTimeout = 30 * time.Second // bounds a query, which takes stunnel some 10 ms
	queryRetry   = time.Second      // the delay after a query during which stunnel was killed
	maxQuoted    = 300              // bounds the output that errors quote, in characters
)

// waitForFeatures queries the stunnel program until it answers or the context ends. It returns an
// error if the program lacks a required feature.
func waitForFeatures(ctx context.Context, o Options) (stunnelcfg.Features, error) {
	for {
		features, err := QueryFeatures(ctx, o.Stunnel, o.FIPS)
		if !errors.Is(err, errKilled) || ctx.Err() != nil {
			return features, err
		}
		o.Log.Warn("stunnel was killed before it reported its features; retrying", "err", err, "requeueAfter", queryRetry)
		select {
		case <-ctx.Done():
		case <-time.After(queryRetry):
		}
	}
}

// QueryFeatures runs a stunnel program to read its version and options. It returns an error that
// quotes the program's output if the program lacks a required feature; with fips, FIPS is one.
func QueryFeatures(ctx context.Context, path string, fips bool) (stunnelcfg.Features, error) {
	var version, help string
	group, ctx := errgroup.WithContext(ctx) // tunnels wait for the answers when a supervisor restarts
	group.Go(func() (err error) { version, err = runQuery(ctx, path, "-version"); return err })
	group.Go(func() (err error) { help, err = runQuery(ctx, path, "-help"); return err })
	if err := group.Wait(); err != nil {
		return stunnelcfg.Features{}, err
	}
	features := stunnelcfg.ParseFeatures(version, help)
	if err := features.Check(fips); err != nil {
		return stunnelcfg.Features{}, fmt.Errorf("unusable stunnel %s: %w; its output is %s", path, err, quoted(version))
	}
	return features, nil
}

// errKilled says that the program took too long, or got SIGKILL, which the kernel sends when memory
// runs out. A retry may succeed.
var errKilled = errors.New("killed before it answered")

// runQuery returns the output of a query. It ignores the exit code, which differs between versions.
func runQuery(ctx context.Context, path, option string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, option)
	cmd.WaitDelay = outputGrace
	text, err := cmd.CombinedOutput()
	state := cmd.ProcessState // nil if the program has not started
	switch {
	case ctx.Err() != nil, state != nil && state.Sys() == syscall.WaitStatus(syscall.SIGKILL):
		return "", fmt.Errorf("running %s %s: %w", path, option, errKilled)
	case state == nil || !state.Exited():
		return "", fmt.Errorf("running %s %s: %w; its output is %s", path, option, err, quoted(string(text)))
	}
	return string(text), nil
}

// quoted returns the beginning of a text as one quoted line.
func quoted(text string) string {
	joined := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return fmt.Sprintf("%.*q", maxQuoted, joined)
}
