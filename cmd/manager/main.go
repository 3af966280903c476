// Command manager provisions and deletes the volumes of a cluster. It runs in two or more
// replicas, one of which leads; see --help for its settings.
//
// The apiserver and AWS may be away when it starts, and later: it says so in its log and in
// /readyz, stays alive, and goes on when they are back. It ends only when it is told to (exit
// code 0), when it lost its Lease or was left without anything that it could do (1), or because
// of its settings (2).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"syscall"

	"gnuthought.com/efs-stunnel/pkg/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/forbidden"
	"gnuthought.com/efs-stunnel/pkg/logging"
	"gnuthought.com/efs-stunnel/pkg/settings"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// heapGrowth is how many percent the heap grows until it is collected. Nearly all of it are caches,
// which stay, so Go's 100 would keep as much again for garbage that there hardly is.
const heapGrowth = 50

// memoryLimit is from where on garbage is collected as soon as there is some: nine tenths of what the
// container may have, in bytes. Without a number there is no limit.
func memoryLimit(container string) int64 {
	bytes, err := strconv.ParseInt(container, 10, 64)
	if err != nil || bytes <= 0 {
		return math.MaxInt64
	}
	return bytes / 10 * 9
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(os.Getenv("MEMORY_LIMIT")))
	}
	os.Exit(run(ctx, os.Args[1:], processEnvironment(), os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, e environment, stdout, stderr io.Writer) int {
	o, set, err := parseOptions(args, e)
	switch {
	case errors.Is(err, settings.ErrHelp):
		fmt.Fprintf(stdout, "Usage:\n  manager [flags]\n  manager version\n%s", set.Help())
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "manager:", err)
		return exitUsage
	case o.version:
		fmt.Fprintln(stdout, "manager", buildinfo.Read())
		return exitDone
	}
	log := logging.New(stderr, logging.Format(o.logFormat), o.logLevel)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	if err := manage(ctx, o, log); err != nil {
		log.Error("manager ends because of an error", "err", err)
		return exitFailed
	}
	log.Info("manager ends")
	return exitDone
}
