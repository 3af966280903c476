package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/forbidden"
	"gnuthought.com/efs-stunnel/pkg/kubeprogram"
	"gnuthought.com/efs-stunnel/pkg/logging"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/tunnel/agent"
)

const (
	// agentMemory is the size from which on garbage is collected without regard to processor time; the
	// agent needs less.
	agentMemory = 32 << 20
	// agentGarbage is how many percent the heap grows until garbage is collected. Every sync of the
	// tunnels makes some. Against Go's 100, this is 1 MiB less of every node with a hundred targets, and
	// 2 at the start, for 0.6 % of one processor.
	agentGarbage = 50
	agentUsage   = "  nodeagent [flags]\n  nodeagent supervise [flags]\n  nodeagent version\n" +
		"kubelet's probes are nodeagent-supervise probe healthy|ready.\n"
)

func agentMain(args []string) int {
	return agentRun(program.Context(), args, kubeprogram.ProcessEnvironment(), os.Stdout, os.Stderr)
}

func agentRun(ctx context.Context, args []string, e kubeprogram.Environment, stdout, stderr io.Writer) int {
	o, set, err := parseAgentOptions(args, e)
	if err != nil {
		return program.ExitWithout(set, err, agentUsage, stdout, stderr)
	}
	debug.SetMemoryLimit(agentMemory)
	debug.SetGCPercent(agentGarbage)
	log := o.Log.New(stderr)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	log.Info("node agent starts", "node", o.node, "version", buildinfo.Read().String())
	if err := runAgent(ctx, o, log); err != nil {
		log.Error("node agent ends because of an error", "err", err)
		return program.ExitFailed
	}
	log.Info("node agent ends; the tunnels stay")
	return program.ExitDone
}

// runAgent runs the agent until the context ends.
func runAgent(ctx context.Context, o agentOptions, log *slog.Logger) error {
	options, broadcast, err := wireAgent(o, log)
	if err != nil {
		return err
	}
	defer kubeprogram.CloseEvents(ctx, broadcast)
	a, err := agent.New(options)
	if err != nil {
		return fmt.Errorf("making the agent: %w", err)
	}
	return a.Run(ctx)
}
