// Command histories tests what a file system promises to clients on several nodes, while parts of it fail.
//
// Clients do random operations on a few files: reads and writes with O_DIRECT and with close-to-open, sections under
// fcntl and flock locks, with and without mapped memory, exclusive creates and renames for which they race, and I/O on a
// file that is open and removed.
// Each of them is a process, because POSIX locks belong to processes. The referee writes the history of all operations,
// which the checker then judges with porcupine: is there an order of the operations on each object that explains every
// result?
//
// # One clock
//
// Such an order must agree with real time, and the clocks of nodes do not. So the referee is the clock. Before a client
// begins an operation, it has the referee stamp the call, and waits for the answer; after the operation it sends the
// return. The stamps are the order in which the referee receives these lines. A call is stamped before the operation
// begins and a return after it has ended, so the recorded interval contains the real one. Intervals that are too long
// can hide a violation, and cannot make one.
//
// # What is not known
//
// An operation that fails, or whose client dies, may have happened, and may happen later: a request may be on its way.
// It is open to the end of the history, and its model allows it everywhere. A client that dies with a lock gives it up
// at some time. That an operation fails is a violation of its own: volumes are mounted hard, and no fault of a tunnel
// may show as an error.
//
// # What NFS does not promise
//
// The models claim no more than NFSv4.1 does with Linux' client:
//
//   - A write that was sent again may happen twice before it returns, because servers remember the answers of requests
//     that change names and locks, and not those of writes. So each file without a lock has one writer.
//   - Close-to-open is less than a register: see staleReads. A server on a local disk may show a write's timestamp
//     microseconds before its content; a node that reads in between keeps the old content until the next write. No run
//     is known to have shown that; a single stale read of a closed file would look like it.
//   - Names are cached for half a minute: see nameModel.
//   - Reads without a lock may have parts of two writes. They are repeated.
//   - A file that another node removes is gone (ESTALE). Only the client that has it open removes it here.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "histories:", err)
		os.Exit(1)
	}
}

// options are the flags of all commands.
type options struct {
	listen, referee, dir, history      string
	slot, clients, slots, count, least int
	rest                               time.Duration
}

var errUsage = errors.New("usage: histories referee|client|clients|await|finish|check [flags]")

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", ":7000", "referee: the address")
	flags.StringVar(&o.history, "history", "history.jsonl", "referee, check: the file")
	flags.StringVar(&o.referee, "referee", "127.0.0.1:7000", "others: the referee's address")
	flags.StringVar(&o.dir, "dir", ".", "client, clients: the directory, new at the beginning of a history")
	flags.IntVar(&o.slot, "slot", 0, "client, clients: the first one's number")
	flags.IntVar(&o.slots, "slots", 1, "client, clients: how many there are in all")
	flags.DurationVar(&o.rest, "rest", 0, "client, clients: how long one rests between operations, at most")
	flags.IntVar(&o.clients, "clients", 1, "clients: how many processes; await: how many must be connected")
	flags.IntVar(&o.count, "count", 3, "await: how many operations each client must do")
	flags.IntVar(&o.least, "at-least", 1, "check: how many operations there must be")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if o.slot < 0 || o.clients < 1 || strings.HasPrefix(args[0], "client") && o.slot+o.clients > o.slots {
		return fmt.Errorf("%w: clients %d to %d are not among %d slots", errUsage, o.slot, o.slot+o.clients-1, o.slots)
	}
	switch args[0] {
	case "referee":
		return listen(ctx, o)
	case "clients":
		return spawn(ctx, o)
	case "client":
		return work(ctx, o)
	case "await", "finish":
		return ask(ctx, o.referee, request{Role: args[0], Clients: o.clients, Count: o.count}, out)
	case "check":
		return judge(o, out)
	}
	return errUsage
}

func listen(ctx context.Context, o options) error {
	r, err := newReferee(o.history)
	if err != nil {
		return err
	}
	// A node that loses its power closes no connection.
	config := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 10 * time.Second, Count: 3}}
	listener, err := config.Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return r.serve(ctx, listener)
}

// spawn runs clients, and ends all of them with the first that fails.
func spawn(ctx context.Context, o options) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range o.clients {
		group.Go(func() error {
			cmd := exec.CommandContext(ctx, program, "client", "-referee", o.referee, "-dir", o.dir,
				"-slot", strconv.Itoa(o.slot+i), "-slots", strconv.Itoa(o.slots), "-rest", o.rest.String())
			cmd.Stderr = os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("client %d: %w", o.slot+i, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// ask sends a request to the referee, and writes the answer.
func ask(ctx context.Context, address string, question request, out io.Writer) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connecting to the referee: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return fmt.Errorf("asking the referee: %w", err)
	}
	n, err := io.Copy(out, conn)
	if err == nil && n == 0 {
		return errors.New("the referee did not answer")
	}
	return err
}

// judge checks a history, and returns an error unless it is right.
func judge(o options, out io.Writer) error {
	file, err := os.Open(o.history)
	if err != nil {
		return fmt.Errorf("reading the history: %w", err)
	}
	defer file.Close()
	all, err := parse(file)
	if err != nil {
		return err
	}
	v := check(all)
	v.print(out)
	switch {
	case len(v.violations) > 0:
		return fmt.Errorf("%d violations", len(v.violations))
	case v.operations < o.least:
		return fmt.Errorf("%d operations, want %d", v.operations, o.least)
	}
	return nil
}
