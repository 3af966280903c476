// Command lab runs a real Kubernetes cluster, real nodes and a stand-in for
// Amazon EFS on one machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"gnuthought.com/efs-stunnel/hack/lab/internal/cli"
)

func main() {
	// Threads that enter a network namespace end there. The main thread cannot
	// end, so it must never be one of them, except just before an exec.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	if err := cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}
