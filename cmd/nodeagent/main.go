// Command nodeagent keeps a node's tunnels. It runs in two containers of one pod, which share a
// folder:
//
//	nodeagent             the agent: watches the table, writes the tunnels' files, probes
//	nodeagent supervise   the supervisor: becomes nodeagent-supervise, which lies beside it
//	nodeagent version     says which build this is
//
// Either lives without the other. kubelet's probes run nodeagent-supervise, too.
//
// Exit code 0 means that it was told to end, 1 that it could not go on, 2 that its settings are
// wrong.
package main

import (
	"fmt"
	"io"
	"os"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(dispatch(os.Args[1:], os.Stdout, os.Stderr)) }

// dispatch: whatever is no other command is the agent's, whose flags come first then.
func dispatch(args []string, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "supervise":
		return superviseMain(args[1:])
	case "probe":
		fmt.Fprintln(stderr, "nodeagent: probe is a command of the small program: want nodeagent-supervise probe healthy|ready")
		return exitUsage
	case "version":
		fmt.Fprintln(stdout, "nodeagent", buildinfo.Read())
		return exitDone
	}
	return agentMain(args)
}
