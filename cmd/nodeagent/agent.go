package main

import (
	"context"
	"io"
	"runtime/debug"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/node/agent"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

const (
	// agentMemory is the size from which on garbage is collected without regard to processor time. The
	// agent needs less: with 1,000 targets, the probes' connections and goroutines take 22 MiB.
	agentMemory = 64 << 20
	// agentGarbage is the growth of the heap, in percent, after which garbage is collected. Every sync
	// of the tunnels makes some. Against Go's 100, this is 1 MiB less of every node with a hundred targets, and
	// 2 at the start, for 0.6 % of one processor.
	agentGarbage = 50
	agentUsage   = "  nodeagent [flags]\n  nodeagent supervise [flags]\n  nodeagent version\n" +
		"kubelet's probes are nodeagent-supervise probe healthy|ready.\n"
)

func agentRun(ctx context.Context, args []string, e client.Environment, stdout, stderr io.Writer) int {
	o, set, err := parseAgentOptions(args, e)
	if err != nil {
		return program.ExitWithout(set, err, agentUsage, stdout, stderr)
	}
	debug.SetMemoryLimit(agentMemory)
	debug.SetGCPercent(agentGarbage)
	log := o.Log.New(stderr)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	log.Info("node agent starts", "node", o.node, "version", buildinfo.Read().String())
	options, broadcast, err := wireAgent(o, log)
	if err == nil {
		err = agent.New(options).Run(ctx)
		client.CloseEvents(ctx, broadcast)
	}
	if err != nil {
		log.Error("node agent ends because of an error", "err", err)
		return program.ExitFailed
	}
	log.Info("node agent ends; the tunnels stay")
	return program.ExitDone
}
