package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/forbidden"
	"gnuthought.com/efs-stunnel/pkg/logging"
	"gnuthought.com/efs-stunnel/pkg/settings"
	"gnuthought.com/efs-stunnel/pkg/tunnel/agent"
)

const (
	// agentMemory is where the agent collects garbage in earnest; it lives in less.
	agentMemory = 32 << 20
	// agentGarbage is how much garbage there may be, in percent of what lives, before it is
	// collected. Every look at the tunnels makes some. Against Go's 100, this is 1 MiB less of
	// every node with a hundred targets, and 2 at the start, for 0.6 % of one processor.
	agentGarbage = 50
	// eventFlush bounds the wait for events at the end.
	eventFlush = 3 * time.Second
)

func agentMain(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	return agentRun(ctx, args, agentEnvironment{os.Getenv, os.ReadFile}, os.Stdout, os.Stderr)
}

func agentRun(ctx context.Context, args []string, e agentEnvironment, stdout, stderr io.Writer) int {
	o, set, err := parseAgentOptions(args, e)
	switch {
	case errors.Is(err, settings.ErrHelp):
		fmt.Fprintf(stdout, "Usage:\n  nodeagent [flags]\n  nodeagent supervise [flags]\n"+
			"  nodeagent version\nkubelet's probes are nodeagent-supervise probe healthy|ready.\n%s", set.Help())
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "nodeagent:", err)
		return exitUsage
	}
	debug.SetMemoryLimit(agentMemory)
	debug.SetGCPercent(agentGarbage)
	log := logging.New(stderr, logging.Format(o.logFormat), o.logLevel)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	log.Info("node agent starts", "node", o.node, "reason", "build "+buildinfo.Read().String())
	if err := runAgent(ctx, o, log); err != nil {
		log.Error("node agent ends because of an error", "err", err)
		return exitFailed
	}
	log.Info("node agent ends; the tunnels stay")
	return exitDone
}

// runAgent works until the context ends.
func runAgent(ctx context.Context, o agentOptions, log *slog.Logger) error {
	w, err := wireAgent(o, log)
	if err != nil {
		return err
	}
	defer w.closeEvents(ctx)
	a, err := agent.New(w.options)
	if err != nil {
		return fmt.Errorf("making the agent: %w", err)
	}
	return a.Run(ctx)
}
