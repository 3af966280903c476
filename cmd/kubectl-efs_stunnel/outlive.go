package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// outliveFlags are the flags of the commands that make volumes of directories.
type outliveFlags struct {
	ledgerFlags
	class, policy, size, accessMode string
	apply                           bool
	timeout                         time.Duration
}

func (f *outliveFlags) add(command *cobra.Command, p *plugin, class, classUsage string) {
	f.ledgerFlags.add(command, p)
	flags := command.Flags()
	flags.StringVar(&f.class, "class", class, classUsage)
	flags.StringVar(&f.policy, "reclaim-policy", string(corev1.PersistentVolumeReclaimRetain), "reclaim policy of the volumes: Retain or Delete")
	flags.StringVar(&f.size, "size", "1Gi", "size of volumes and claims")
	flags.StringVar(&f.accessMode, "access-mode", string(corev1.ReadWriteMany), "access mode of volumes and claims")
	flags.BoolVar(&f.apply, "apply", false, "create them; without it they are only printed")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait until the claims are bound")
	_ = command.RegisterFlagCompletionFunc("reclaim-policy", cobra.FixedCompletions(
		[]cobra.Completion{string(corev1.PersistentVolumeReclaimRetain), string(corev1.PersistentVolumeReclaimDelete)}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *outliveFlags) choice() (rebuild.Choice, error) {
	size, err := resource.ParseQuantity(f.size)
	switch {
	case err != nil:
		return rebuild.Choice{}, fmt.Errorf("--size %q: %w", f.size, err)
	case f.policy != string(corev1.PersistentVolumeReclaimRetain) && f.policy != string(corev1.PersistentVolumeReclaimDelete):
		return rebuild.Choice{}, fmt.Errorf("--reclaim-policy %q: want Retain or Delete", f.policy)
	}
	return rebuild.Choice{
		Class: f.class, Policy: corev1.PersistentVolumeReclaimPolicy(f.policy), Size: size,
		AccessMode: corev1.PersistentVolumeAccessMode(f.accessMode),
	}, nil
}

// targets returns the targets of the table.
func (i installation) targets() (map[string]ports.Target, error) {
	table, _, err := ports.DecodeLenient([]byte(i.Table.Data[wellknown.TargetsKey]))
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", wellknown.TargetsConfigMap, err)
	}
	return table.Targets, nil
}

// finish prints the objects of a plan, or creates them and prints what became of each.
func (p *plugin) finish(ctx context.Context, i installation, items []rebuild.Item, lost *requests.Lost, f outliveFlags) error {
	planned := rebuild.Count(items, rebuild.Planned)
	if !f.apply {
		if err := p.printItems(p.streams.ErrOut, "", items); err != nil {
			return err
		}
		if planned > 0 {
			p.say("dry run", fmt.Sprintf("--apply does this for %d directories, and records their owners", planned))
		}
		return errors.Join(rebuild.PrintObjects(p.streams.Out, p.output, items), incomplete(items))
	}
	failed := p.carryOut(ctx, i, items, lost, f.timeout)
	if err := p.printItems(p.streams.Out, p.output, items); err != nil {
		return err
	}
	p.say("applied", fmt.Sprintf("%d of %d planned", rebuild.Count(items, rebuild.Done), planned))
	return errors.Join(failed, incomplete(items))
}

// carryOut also waits until the claims are bound.
func (p *plugin) carryOut(ctx context.Context, i installation, items []rebuild.Item, lost *requests.Lost, timeout time.Duration) error {
	progress := newProgress(p.streams.ErrOut)
	defer progress.stop()
	progress.step("recording owners, and creating volumes and claims")
	if err := i.runner.Apply(ctx, items, i.cluster, lost); err != nil {
		return err
	}
	progress.step("waiting until the claims are bound")
	return i.runner.AwaitBound(ctx, items, timeout)
}

// printItems prints copies without the objects: the printer replaces what no terminal should get.
func (p *plugin) printItems(out io.Writer, format string, items []rebuild.Item) error {
	shown := append([]rebuild.Item{}, items...)
	for i := range shown {
		shown[i].Adoption, shown[i].NewVolume, shown[i].NewClaim = nil, nil, nil
	}
	return inspect.WriteRows(out, format, shown, rebuild.Rows)
}

// incomplete returns an error unless everything that was asked for is there, or is planned.
func incomplete(items []rebuild.Item) error {
	if count := rebuild.Count(items, rebuild.Refused, rebuild.Whose, rebuild.Failed); count > 0 {
		return fmt.Errorf("no volumes for %d of %d directories: see the notes", count, len(items))
	}
	return nil
}
