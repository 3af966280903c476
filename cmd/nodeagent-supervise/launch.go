package main

import (
	"fmt"
	"io"

	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

const (
	launchCommand = "launch"
	// selfExecutable is this program, even if its file has been replaced.
	selfExecutable = "/proc/self/exe"
)

// launch is the command that the supervisor starts for each stunnel process. It returns only on
// error.
func launch(args []string, stderr io.Writer) int {
	if len(args) != 2 {
		fmt.Fprintln(stderr, "nodeagent-supervise: want launch PROGRAM FILE")
		return exitUsage
	}
	fmt.Fprintln(stderr, "nodeagent-supervise:", supervise.Launch(args[0], args[1]))
	return exitFailed
}
