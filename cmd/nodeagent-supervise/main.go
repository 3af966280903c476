// Command nodeagent-supervise is the node's small program:
//
//	nodeagent-supervise          is what nodeagent supervise runs: listens on the port of each
//	                             tunnel that the node agent asks for, and runs its stunnel process
//	nodeagent-supervise launch   becomes such a process: program, memory limit and configuration
//	nodeagent-supervise probe    asks the agent, for kubelet
//
// It is a program of its own because of its memory: a supervisor that linked what the agent
// needs for the Kubernetes API would take twice as much, on every node; and a probe that did
// would load all of that every few seconds.
//
// Exit code 0 means that the supervisor was told to end, or that the agent is well; 1 that there
// is no folder or no stunnel to work with, or that the agent is not well; 2 that the settings
// are wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/logging"
	"gnuthought.com/efs-stunnel/pkg/settings"
	"gnuthought.com/efs-stunnel/pkg/tunnel/sockets"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// serveOn and stopGrace are within the pod's 300 seconds.
const serveOn, stopGrace = 270 * time.Second, 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once, and with it every stunnel
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
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
	switch {
	case errors.Is(err, settings.ErrHelp):
		fmt.Fprintf(stdout, "Usage:\n  nodeagent supervise [flags]\n  nodeagent-supervise probe healthy|ready [flags]\n%s", set.Help())
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "nodeagent supervise:", err)
		return exitUsage
	}
	lines := newLossyWriter(stderr)
	defer lines.Close()
	log := logging.New(lines, logging.Format(o.logFormat), o.logLevel)
	log.Info("supervisor starts", "reason", "build "+buildinfo.Read().String())
	err = supervise.Run(ctx, supervise.Options{
		Prefix: o.stunnelConf, Stunnel: o.stunnel, Launcher: []string{ownProgram, launchCommand},
		MemoryLimit: supervise.DefaultMemoryLimit, Idle: o.idle,
		Clients: func() (sockets.Uses, error) { return sockets.Clients(sockets.OwnUID()) }, Listening: sockets.Listening,
		ServeOn: serveOn, StopGrace: stopGrace, ReapOrphans: os.Getpid() == 1, Log: log,
	})
	if err != nil {
		log.Error("supervisor ends because of an error", "err", err)
		return exitFailed
	}
	log.Info("supervisor ends")
	return exitDone
}
