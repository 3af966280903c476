// Command nodeagent-readahead raises the read-ahead of a node's mounts of tunnels. It runs as root in a
// DaemonSet of its own, with the host's network, in which the kernel lists the mounts, and without a
// capability or a token: the pods that carry data have no right of it.
//
// Exit code 0 means that it was asked to end, 2 that its settings are invalid.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/node/readahead"
	"gnuthought.com/efs-stunnel/pkg/program"
	"gnuthought.com/efs-stunnel/pkg/program/buildinfo"
	"gnuthought.com/efs-stunnel/pkg/program/settings"
)

const (
	// defaultKiB is the read-ahead that efs-utils sets: 15 requests of 1 MiB.
	defaultKiB = 15 * 1024
	maxKiB     = 64 * 1024
	// interval is the longest time that a new mount has the kernel's default.
	interval = 2 * time.Second
)

func main() { os.Exit(run(program.Context(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	o := readahead.Options{KiB: defaultKiB, Table: "/etc/efs-stunnel/efs-stunnel.yaml.gz", Mounts: "/proc/net/nfsfs/volumes", Devices: "/sys/devices/virtual/bdi", Interval: interval}
	var log program.Log
	set := settings.New("nodeagent-readahead")
	mounts := set.Group("Mounts")
	mounts.Add(settings.Integer(&o.KiB, readahead.KernelDefault, maxKiB), "read-ahead", "",
		fmt.Sprintf("`KiB` that the kernel reads ahead; mounts with another value than the kernel's default of %d are left alone", readahead.KernelDefault))
	mounts.Add(settings.Text(&o.Table, "file", checkPath), "table", "", "`file` with the table of ports, from the ConfigMap efs-stunnel-view; without .gz at its end from efs-stunnel")
	mounts.Add(settings.Text(&o.Devices, "folder", checkPath), "devices", "", "`folder` with the kernel's settings of each device")
	log.Add(set.Group("Logs"))
	if err := set.Parse(args, getenv); err != nil {
		return program.ExitWithout(set, err, "  nodeagent-readahead [flags]\n", stdout, stderr)
	}
	o.Log = log.New(stderr)
	o.Log.Info("program started", "version", buildinfo.Read().String(), "kib", o.KiB)
	readahead.Run(ctx, o)
	return program.ExitDone
}

func checkPath(path string) error {
	if path == "" || strings.ContainsRune(path, 0) {
		return errors.New("want a path")
	}
	return nil
}
