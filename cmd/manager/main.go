// Command manager provisions and deletes the volumes of a cluster. It runs in two or more replicas, one
// of which is the leader; see --help for its settings. With the argument certificates it makes and renews the
// certificates of NFS servers of one's own, and ends.
//
// While the apiserver or AWS is unavailable, also at the start, the manager says so in its log and in
// /readyz, and retries. It exits with code 0 when it is asked to end; with 1 if it loses its Lease or
// cannot do anything; with 2 if its settings are invalid.
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"strconv"

	"gnuthought.com/efs-stunnel/pkg/kube/client"
	"gnuthought.com/efs-stunnel/pkg/kube/forbidden"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// heapGrowth is the growth of the heap, in percent, after which it is collected. Nearly all of it are caches,
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
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(os.Getenv("MEMORY_LIMIT")))
	}
	os.Exit(run(program.Context(), os.Args[1:], client.ProcessEnvironment(), os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, e client.Environment, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == certificatesCommand {
		return renewCertificates(ctx, args[1:], e, stdout, stderr)
	}
	o, set, err := parseOptions(args, e)
	switch {
	case err != nil:
		return program.ExitWithout(set, err, "  manager [flags]\n  manager certificates [flags]\n  manager version\n", stdout, stderr)
	case o.version:
		fmt.Fprintln(stdout, "manager", buildinfo.Read())
		return program.ExitDone
	}
	log := o.Log.New(stderr)
	logging.UseForKubernetes(log, forbidden.IsRefusal)
	if err := manage(ctx, o, log); err != nil {
		log.Error("manager ends because of an error", "err", err)
		return program.ExitFailed
	}
	log.Info("manager ends")
	return program.ExitDone
}
