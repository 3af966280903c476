package main

import (
	"fmt"
	"io"
	"strconv"

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
	const want = "want launch PROGRAM MEMORY-LIMIT FILE"
	if len(args) != 3 {
		fmt.Fprintln(stderr, "nodeagent-supervise:", want)
		return exitUsage
	}
	limit, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		fmt.Fprintf(stderr, "nodeagent-supervise: %s: %v\n", want, err)
		return exitUsage
	}
	fmt.Fprintln(stderr, "nodeagent-supervise:", supervise.Launch(args[0], args[2], limit))
	return exitFailed
}
