package orchestrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// Down stops and removes everything of the lab that still exists. It also cleans up after a lab that was
// killed or partly started, and after a reboot.
func (o *Orchestrator) Down(ctx context.Context) error {
	if err := host.CheckRoot(); err != nil {
		return err
	}
	if !o.Lab.Exists() && !network.Exists(o.Lab) {
		o.Steps.Printf("          lab %s does not exist", o.Lab.Name)
		return nil
	}
	unlock, err := o.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return o.doAll(ctx, []titledStep{
		{"stopping processes", o.stopParts},
		{"stopping other processes in the lab's network", o.killUnrecorded},
		{"removing network " + o.Lab.NetNS(), func(context.Context, *step.Notes) error { return network.Down(o.Lab) }},
		{"removing " + o.Lab.Dir, func(context.Context, *step.Notes) error { return o.removeFiles() }},
	})
}

func (o *Orchestrator) removeFiles() error {
	return errors.Join(os.RemoveAll(o.Lab.Dir), os.Remove(o.Lab.Dir+".lock"))
}

// stopParts stops the machines first, which end at once, because they would log errors when the other
// parts end.
func (o *Orchestrator) stopParts(ctx context.Context, _ *step.Notes) error {
	records, err := o.Lab.Parts().List()
	if err != nil {
		return err
	}
	isNode := o.nodeParts()
	first := slices.DeleteFunc(slices.Clone(records), func(r proc.Record) bool { return !isNode[r.Name] })
	rest := slices.DeleteFunc(records, func(r proc.Record) bool { return isNode[r.Name] })
	return errors.Join(o.stopAll(ctx, first), o.stopAll(ctx, rest))
}

func (o *Orchestrator) nodeParts() map[string]bool {
	parts := make(map[string]bool)
	s, err := o.Lab.Load()
	if err != nil {
		return parts // all parts are stopped at once then
	}
	for _, n := range s.Nodes {
		parts[n.Part()] = true
	}
	return parts
}

func (o *Orchestrator) stopAll(ctx context.Context, records []proc.Record) error {
	var group errgroup.Group
	for _, r := range records {
		group.Go(func() error { return o.Lab.Parts().Stop(ctx, r.Name, stopGrace) })
	}
	return group.Wait()
}

// killUnrecorded ends processes in the lab's namespace that have no record, such as a command of `lab
// exec`.
func (o *Orchestrator) killUnrecorded(ctx context.Context, notes *step.Notes) error {
	return await(ctx, notes, time.Minute, "processes in the lab's network to end", func(ctx context.Context) error {
		pids, err := network.Processes(ctx, o.Lab)
		if err != nil {
			return backoff.Permanent(err)
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if pid == os.Getpid() {
				return backoff.Permanent(errors.New("this program itself is in the lab's network"))
			}
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return backoff.Permanent(fmt.Errorf("ending process %d: %w", pid, err))
			}
		}
		return fmt.Errorf("still running: %v", pids)
	})
}
