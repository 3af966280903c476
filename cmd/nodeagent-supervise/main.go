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
	"crypto/fips140"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/confdir"
	"gnuthought.com/efs-stunnel/pkg/node/realtime"
	"gnuthought.com/efs-stunnel/pkg/node/sockets"
	"gnuthought.com/efs-stunnel/pkg/node/supervise"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/process"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
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
	lines := logging.NewLossy(stderr)
	defer lines.Close()
	o.Log = o.log.New(lines)
	o.Log.Info("supervisor started", "version", buildinfo.Read().String())
	if o.realtime {
		if err := enterRealtime(o); err != nil {
			o.Log.Error("supervisor failed", "err", err)
			return program.ExitFailed
		}
	}
	listed := &sockets.Lister{}
	o.Clients = func() (sockets.ClientCounts, error) { return listed.Clients(sockets.OwnUID()) }
	o.Listening, o.Launcher, o.ReapOrphans = listed.Listening, []string{selfExecutable, launchCommand}, os.Getpid() == 1
	if err := supervise.Run(ctx, o.Options); err != nil {
		o.Log.Error("supervisor failed", "err", err)
		return program.ExitFailed
	}
	o.Log.Info("supervisor stopped")
	return program.ExitDone
}

// enterRealtime goes on without what the node does not allow, because tunnels matter more, but not as root.
func enterRealtime(o options) error {
	if err := realtime.Enter(o.Stunnel); err != nil {
		o.Log.Warn("tunnels may wait for memory when the node's is full", "err", err)
	} else {
		o.Log.Info("tunnels have realtime priority")
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return realtime.Leave(wellknown.AgentUser, wellknown.AgentUser)
}

// launch is the command that the supervisor starts for each stunnel process. It returns only on error.
func launch(args []string, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "nodeagent-supervise: want launch PROGRAM FILE")
		return program.ExitUsage
	}
	fmt.Fprintln(stderr, "nodeagent-supervise:", process.Launch(args[0], args[1]))
	return program.ExitFailed
}

// maxIdle is the longest --tunnel-idle.
const maxIdle = 24 * time.Hour

// options are checked settings.
type options struct {
	supervise.Options
	realtime bool
	log      program.Log
}

func parseOptions(args []string, getenv func(string) string) (options, *settings.Set, error) {
	o := options{Options: supervise.Options{
		Prefix: wellknown.DefaultStunnelConf, Idle: 10 * time.Minute, MemoryLimit: supervise.DefaultMemoryLimit,
		DrainTimeout: drainTimeout, StopGrace: stopGrace, Lanes: 1,
	}}
	set := settings.New("nodeagent supervise")
	tunnels := set.Group("Tunnels")
	tunnels.Add(settings.Text(&o.Prefix, "path", confdir.CheckPrefix), "stunnel-conf", "STUNNEL_CONF_PATH",
		"`path` that begins the names of the tunnels' files; stunnel's configuration adds a dot and the tunnel's name")
	programs := []string{wellknown.StunnelPath, wellknown.StunnelSystemPath, wellknown.StunnelCommand}
	tunnels.Add(settings.Text(&o.Stunnel, "program", checkProgram), "stunnel", "STUNNEL_PATH",
		"stunnel `program`; default is the first that exists of "+strings.Join(programs, ", "))
	tunnels.Add(settings.Duration(&o.Idle, 0, maxIdle), "tunnel-idle", "",
		"`time` without a connection after which a tunnel's stunnel stops, until the next connection; with 0, all run always")
	tunnels.Add(settings.Integer(&o.Lanes, 1, tunnelspec.MaxLanes), "lanes", "",
		"most `connections` to a server that a busy mount is spread over; with 1, each mount has the one that it opens ("+wellknown.DocsURL+"tasks/lanes.md)")
	tunnels.Add(settings.Bool(&o.FIPS), "fips", "EFS_FIPS",
		"run stunnel in FIPS mode, and nothing without; needs images that are built for it ("+wellknown.DocsURL+"tasks/fips.md)")
	tunnels.Add(settings.Bool(&o.realtime), "realtime", "",
		"run before other programs, and in memory that the kernel does not take away, so that data leaves a node whose memory is full of it; starts as root and does not stay it ("+wellknown.DocsURL+"tasks/full-memory.md)")
	o.log.Add(set.Group("Logs"))
	if err := set.Parse(args, getenv); err != nil {
		return options{}, set, err
	}
	// The agent, which probes servers over TLS, is of the same build.
	if o.FIPS && !fips140.Enabled() {
		return options{}, set, set.Wrong("fips", errors.New("want an image whose Go programs are built with GOFIPS140, for example make images GOFIPS140=v1.0.0"))
	}
	if o.Stunnel != "" {
		programs = []string{o.Stunnel}
	}
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			o.Stunnel, err = filepath.Abs(path)
			return o, set, err
		}
	}
	err := fmt.Errorf("want an executable program; there is none at %s", strings.Join(programs, ", "))
	return options{}, set, set.Wrong("stunnel", err)
}

func checkProgram(name string) error {
	if name == "" || strings.ContainsAny(name, "\x00\r\n") {
		return errors.New("want the path or name of a program")
	}
	return nil
}
