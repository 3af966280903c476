// Command nodeagent keeps a node's tunnels. It runs in two containers of one pod, which share a
// folder:
//
//	nodeagent             the agent: watches the table, writes the tunnels' files, probes
//	nodeagent probe       asks the agent, for kubelet
//	nodeagent supervise   the supervisor: becomes nodeagent-supervise, which lies beside it
//	nodeagent version     says which build this is
//
// Either lives without the other. Exit code 0 means that it was told to end, 1 that it could not
// go on, 2 that its settings are wrong.
package main

import (
	"fmt"
	"os"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(dispatch(os.Args[1:])) }

// dispatch: whatever is no other command is the agent's, whose flags come first then.
func dispatch(args []string) int {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "supervise":
		return superviseMain(args[1:])
	case "version":
		fmt.Fprintln(os.Stdout, "nodeagent", buildinfo.Read())
		return exitDone
	}
	return agentMain(args)
}
