// Command nodeagent manages a node's tunnels. It runs in two containers of one pod, which share a
// directory:
//
//	nodeagent             the agent: watches the table, writes the tunnels' files, probes the tunnels
//	nodeagent supervise   the supervisor: executes nodeagent-supervise, which is in the same directory
//	nodeagent preflight   reads what the plugin's preflight asks about the node
//	nodeagent version     prints which build this is
//
// Agent and supervisor run without each other. kubelet's probes run nodeagent-supervise, too.
//
// Exit code 0 means that the program was asked to end, 1 that it failed, 2 that its settings are invalid.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"gnuthought.com/efs-stunnel/pkg/api/nodereport"
	"gnuthought.com/efs-stunnel/pkg/efs/awsconfig"
	"gnuthought.com/efs-stunnel/pkg/efs/awsefs"
	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/node/nodecheck"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
)

func main() { os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr)) }

// dispatch runs a command. Arguments without one are flags of the agent.
func dispatch(args []string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "supervise":
		return execSupervisor(args[1:], os.Executable, syscall.Exec, stderr)
	case "probe":
		fmt.Fprintln(stderr, "nodeagent: want nodeagent-supervise probe healthy|ready")
		return program.ExitUsage
	case nodereport.Command:
		return preflight(program.Context(), args[1:], terminationLog, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, "nodeagent", buildinfo.Read())
		return program.ExitDone
	}
	return agentRun(program.Context(), args, client.ProcessEnvironment(), stdout, stderr)
}

// execSupervisor replaces this program by the supervisor, which is in its directory. A program of its own
// takes less memory than the agent, with what is linked here. It returns only on error.
func execSupervisor(
	args []string,
	executable func() (string, error),
	exec func(path string, argv, env []string) error,
	stderr io.Writer,
) int {
	self, err := executable()
	if err == nil {
		path := filepath.Join(filepath.Dir(self), "nodeagent-supervise")
		err = exec(path, append([]string{path}, args...), os.Environ())
		err = fmt.Errorf("starting %s: %w", path, err)
	}
	fmt.Fprintln(stderr, "nodeagent supervise:", err)
	return program.ExitFailed
}

// terminationLog is the pod's termination message, from which the plugin reads the report: that needs no
// right to read logs.
const terminationLog = "/dev/termination-log"

// preflight checks the node for the plugin's preflight. Its argument is a nodereport.Request in JSON.
func preflight(ctx context.Context, args []string, message string, stdout, stderr io.Writer) int {
	var request nodereport.Request
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &request) != nil {
		fmt.Fprintln(stderr, "nodeagent: want preflight REQUEST, as kubectl efs-stunnel preflight runs it")
		return program.ExitUsage
	}
	report := nodecheck.Run(ctx, request, caFiles())
	if request.Region != "" {
		report.AWS = askEFS(ctx, request.Region)
	}
	text, err := json.Marshal(report)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", text)
	}
	if err == nil {
		err = os.WriteFile(message, text, 0o600)
	}
	if err != nil {
		fmt.Fprintln(stderr, "nodeagent preflight:", err)
		return program.ExitFailed
	}
	return program.ExitDone
}

// efsTimeout bounds the calls of the EFS API. Nodes without a role wait for the instance metadata.
const efsTimeout = 15 * time.Second

// askEFS lists the file systems with the identity that the node has.
func askEFS(ctx context.Context, region string) *nodereport.AWS {
	ctx, cancel := context.WithTimeout(ctx, efsTimeout)
	defer cancel()
	sdk, err := awsconfig.Load(ctx, config.WithRegion(region))
	if err != nil {
		return &nodereport.AWS{Error: err.Error()}
	}
	client := awsefs.New(sdk, awsefs.Options{
		CallTimeout: efsTimeout, Parallel: 1, Now: time.Now, Observe: func(string, string, time.Duration) {},
	})
	listing, err := client.ListFileSystems(ctx)
	if err != nil {
		return &nodereport.AWS{Error: err.Error()}
	}
	return &nodereport.AWS{FileSystems: len(listing.FileSystems)}
}
