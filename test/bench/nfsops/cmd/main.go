// Command cmd runs on a node, and prints what the operations of two NFS mounts cost, as JSON: cmd [flags] DIR DIR.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/test/bench/nfsops"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "nfsops:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	c := nfsops.Comparison{Requests: nfsops.RequestsOf, Processor: nfsops.ProcessorTime, Uncached: syscall.O_DIRECT}
	flags := flag.NewFlagSet("nfsops", flag.ContinueOnError)
	flags.IntVar(&c.Count, "count", 500, "`number` of operations of each kind")
	flags.IntVar(&c.Rounds, "rounds", 3, "`number` of rounds of each stream")
	flags.IntVar(&c.Bytes, "bytes", 64<<20, "`bytes` of each round")
	flags.DurationVar(&c.Idle, "idle", 10*time.Second, "`time` for which the work of an idle node is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != len(c.Dirs) || c.Count < 1 || c.Rounds < 1 || c.Bytes < 1 {
		return errors.New("want two directories, and numbers of at least 1")
	}
	copy(c.Dirs[:], flags.Args())
	if err := checkServers(c.Dirs); err != nil {
		return err
	}
	result, err := c.Run()
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// checkServers expects a connection of its own of each mount.
func checkServers(dirs [2]string) error {
	var servers [2]string
	for i, dir := range dirs {
		volumes, err := os.Open("/proc/net/nfsfs/volumes")
		if err != nil {
			return err
		}
		servers[i], err = nfsops.ServerOf(volumes, dir)
		if err := errors.Join(err, volumes.Close()); err != nil {
			return err
		}
	}
	if servers[0] == servers[1] {
		return fmt.Errorf("the kernel uses one connection to %s for both mounts", servers[0])
	}
	return nil
}
