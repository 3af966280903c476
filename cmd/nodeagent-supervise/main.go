// Command nodeagent-supervise is the node's program without the Kubernetes API:
//
//	nodeagent-supervise          listens on the port of each tunnel that the node agent specifies,
//	                             and runs its stunnel process; nodeagent supervise executes it
//	nodeagent-supervise launch   replaces itself by stunnel
//	nodeagent-supervise probe    probes the agent, for the kubelet
//
// A program that links the agent's packages for the Kubernetes API takes twice the memory, which
// the supervisor would cost on every node, and the probe every few seconds.
//
// Exit code 0 means that the supervisor was asked to end, or that the agent is healthy or ready; 1 that the
// directory or stunnel is missing or unsuitable, or that the probe failed; 2 that the settings are invalid.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
)

const (
	launchCommand  = "launch"
	selfExecutable = "/proc/self/exe" // this program, even if its file has been replaced
)

// drainTimeout and stopGrace fit into the pod's termination grace period of 300 seconds.
const drainTimeout, stopGrace = 270 * time.Second, 20 * time.Second

func main() {
	// A second signal kills this process at once, and with it every stunnel.
	os.Exit(run(program.Context(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	switch {
	case len(args) > 0 && args[0] == "probe":
		return probe(ctx, args[1:], getenv, stdout, stderr)
	case len(args) > 0 && args[0] == launchCommand:
		return launch(args[1:], stderr)
	}
	return runSupervisor(ctx, args, getenv, stdout, stderr)
}

func runSupervisor(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o, set, err := parseOptions(args, getenv)
	if err != nil {
		return program.ExitWithout(set, err, "  nodeagent supervise [flags]\n"+probeUsage, stdout, stderr)
	}
	lines := newLossyWriter(stderr)
	defer lines.Close()
	log := o.log.New(lines)
	log.Info("supervisor started", "version", buildinfo.Read().String())
	listed := &sockets.Lister{}
	err = supervise.Run(ctx, supervise.Options{
		Prefix: o.stunnelConf, Stunnel: o.stunnel, FIPS: o.fips, Launcher: []string{selfExecutable, launchCommand},
		MemoryLimit: supervise.DefaultMemoryLimit, Idle: o.idle,
		Clients: func() (sockets.ClientCounts, error) { return listed.Clients(sockets.OwnUID()) }, Listening: listed.Listening,
		DrainTimeout: drainTimeout, StopGrace: stopGrace, ReapOrphans: os.Getpid() == 1, Log: log,
	})
	if err != nil {
		log.Error("supervisor failed", "err", err)
		return program.ExitFailed
	}
	log.Info("supervisor stopped")
	return program.ExitDone
}

// launch is the command that the supervisor starts for each stunnel process. It returns only on error.
func launch(args []string, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "nodeagent-supervise: want launch PROGRAM FILE")
		return program.ExitUsage
	}
	fmt.Fprintln(stderr, "nodeagent-supervise:", supervise.Launch(args[0], args[1]))
	return program.ExitFailed
}
