package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

// defaultSize is the size of claims that are made of directories.
const defaultSize = "1Gi"

// outliveFlags are the flags of the commands that make volumes of directories.
type outliveFlags struct {
	rebuild.Choice // its size is set by check
	size           resource.QuantityValue
	apply          bool
	timeout        time.Duration
}

func (f *outliveFlags) add(command *cobra.Command, class, classUsage string) {
	f.size.Quantity = resource.MustParse(defaultSize)
	flags := command.Flags()
	flags.StringVar(&f.Class, "class", class, classUsage)
	flags.StringVar((*string)(&f.Policy), "reclaim-policy", string(corev1.PersistentVolumeReclaimRetain), "reclaim policy of the volumes: Retain or Delete")
	flags.Var(&f.size, "size", "size of volumes and claims")
	flags.StringVar((*string)(&f.AccessMode), "access-mode", string(corev1.ReadWriteMany),
		"access mode of volumes and claims")
	flags.BoolVar(&f.apply, "apply", false, "create them; without it they are only printed")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait until the claims are bound")
	_ = command.RegisterFlagCompletionFunc("reclaim-policy", cobra.FixedCompletions(
		[]cobra.Completion{string(corev1.PersistentVolumeReclaimRetain), string(corev1.PersistentVolumeReclaimDelete)}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *outliveFlags) check() error {
	if f.Policy != corev1.PersistentVolumeReclaimRetain && f.Policy != corev1.PersistentVolumeReclaimDelete {
		return fmt.Errorf("--reclaim-policy %q: want Retain or Delete", f.Policy)
	}
	f.Size = f.size.Quantity
	return nil
}

type rebuildFlags struct {
	outliveFlags
	cluster, accessPoints string
	force, retained       bool
}

func (p *plugin) rebuild() *cobra.Command {
	var f rebuildFlags
	command := p.onFileSystems(&cobra.Command{
		Use:   "rebuild [--cluster UID]",
		Short: "Make volumes and claims again, from the ledgers of file systems",
		Long: "Make volumes and claims again of what the ledgers of file systems have of this cluster, or of the one that is named\n" +
			"by --cluster and is gone: this cluster takes over its ownership then.\n\n" +
			"Without --apply it prints the objects, and changes nothing. Objects that exist are left alone. A cluster that has\n" +
			"used a file system within " + requests.FreshMark.String() + " is taken for one that lives, and refused without --force.",
		Example: "  kubectl efs-stunnel rebuild --cluster 01234567-89ab-cdef-0123-456789abcdef > volumes.yaml\n" +
			"  kubectl efs-stunnel rebuild --cluster 01234567-89ab-cdef-0123-456789abcdef -n team --apply",
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
	}, func(ctx context.Context, i installation, _ []string) error { return p.runRebuild(ctx, i, f) })
	f.add(command, "", "storage class of volumes whose own class is not known, or not there")
	flags := command.Flags()
	flags.StringVar(&f.cluster, "cluster", "", "uid of a cluster that is gone: that of its namespace kube-system (default: this one)")
	flags.StringVar(&f.accessPoints, "access-points", "", "file with the output of aws efs describe-access-points, for volumes of classes with access points")
	flags.BoolVar(&f.force, "force", false, "also if the cluster has used a file system within "+requests.FreshMark.String())
	flags.BoolVar(&f.retained, "retained", false, "also volumes of retained data, which no volume had any more")
	return command
}

func (p *plugin) runRebuild(ctx context.Context, i installation, f rebuildFlags) error {
	lost := &requests.Lost{Cluster: cmp.Or(f.cluster, i.cluster), Force: f.force}
	cluster, err := p.givenCluster(i, f.accessPoints)
	if err != nil {
		return err
	}
	items, others, err := i.runner.PlanRebuild(ctx, i.fileSystems, *lost, rebuild.Rebuild{
		Cluster: cluster, Choice: f.Choice, Namespace: *p.flags.Namespace, Retained: f.retained,
	})
	if err != nil {
		return err
	}
	p.sayOthers(others)
	if len(items) == 0 {
		p.say("cluster "+lost.Cluster, "no ledger has an owner of it")
	}
	return p.finish(ctx, i, items, lost, f.outliveFlags)
}

// sayOthers prints what is not taken over, because it is another cluster's.
func (p *plugin) sayOthers(others map[string]int) {
	for _, cluster := range slices.Sorted(maps.Keys(others)) {
		if cluster == "" {
			p.say("unreadable entries", fmt.Sprintf("%d stay: see kubectl efs-stunnel owners list", others[cluster]))
			continue
		}
		p.say("cluster "+cluster, fmt.Sprintf("%d owners stay: --cluster takes over those of a cluster that is gone", others[cluster]))
	}
}

// finish prints the objects of a plan, or creates them and prints what became of each.
func (p *plugin) finish(ctx context.Context, i installation, items []rebuild.Item, lost *requests.Lost, f outliveFlags) error {
	planned := rebuild.Count(items, rebuild.Planned)
	if !f.apply {
		if err := printing.WriteRows(p.streams.ErrOut, "", items, rebuild.Rows(items)); err != nil {
			return err
		}
		if planned > 0 {
			p.say("dry run", fmt.Sprintf("--apply does this for %d directories, and records their owners", planned))
		}
		return errors.Join(rebuild.PrintObjects(p.streams.Out, p.output, items), incomplete(items))
	}
	failed := p.carryOut(ctx, i, items, lost, f.timeout)
	if err := printing.WriteRows(p.streams.Out, p.output, items, rebuild.Rows(items)); err != nil {
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

// incomplete returns an error unless everything that was asked for is there, or is planned.
func incomplete(items []rebuild.Item) error {
	if count := rebuild.Count(items, rebuild.Refused, rebuild.Whose, rebuild.Failed); count > 0 {
		return fmt.Errorf("no volumes for %d of %d directories: see the notes", count, len(items))
	}
	return nil
}
