// Command mountjob is what a mount Job runs: it carries out a batch of operations on the file
// system that is mounted in its container, empties the trash there, or answers an administrator.
//
//	mountjob [run] --file-system-id=fs-34a3p3 …   carries out the operations of a file
//	mountjob sweep --file-system-id=fs-34a3p3 …   empties the trash
//	mountjob clone --file-system-id=fs-34a3p3 …   copies a volume
//	mountjob ledger --file-system-id=fs-34a3p3 …  lists or removes what the plugin of kubectl requests
//	mountjob version                              says which build this is
//
// The container's termination message is the report; the log has the details. Exit code 0 means
// that everything was done and reported, 1 that something was not, 2 that the arguments are wrong.
// The program is static and needs nothing of its image: no shell, no library.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"gnuthought.com/efs-stunnel/pkg/worker"
	"gnuthought.com/efs-stunnel/pkg/worker/fsroot"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills at once
	program := worker.Program{
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		Getenv:     os.Getenv,
		Now:        time.Now,
		CheckMount: fsroot.CheckNFS,
	}
	os.Exit(program.Run(ctx, os.Args[1:]))
}
