package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/plugin/rebuild"
)

type rebuildFlags struct {
	outliveFlags
	cluster         string
	force, retained bool
}

func (p *plugin) rebuild() *cobra.Command {
	var f rebuildFlags
	command := &cobra.Command{
		Use:   "rebuild [--cluster UID]",
		Short: "Make volumes and claims again, from the ledgers of file systems",
		Long: "Make volumes and claims again of what the ledgers of file systems have of this cluster, or of the one that is named\n" +
			"by --cluster and is gone: this cluster takes over its ownership then.\n\n" +
			"Without --apply it prints the objects, and changes nothing. Objects that exist are left alone. A cluster that has\n" +
			"used a file system within " + requests.FreshMark.String() + " is taken for one that lives, and refused without --force.",
		Example: "  kubectl efs-stunnel rebuild --cluster 01234567-89ab-cdef-0123-456789abcdef > volumes.yaml\n" +
			"  kubectl efs-stunnel rebuild --cluster 01234567-89ab-cdef-0123-456789abcdef -n team --apply",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(command *cobra.Command, _ []string) error { return p.runRebuild(command.Context(), f) },
	}
	f.add(command, p, "", "storage class of volumes whose own class is not known, or not there")
	flags := command.Flags()
	flags.StringVar(&f.cluster, "cluster", "", "uid of a cluster that is gone: that of its namespace kube-system (default: this one)")
	flags.BoolVar(&f.force, "force", false, "also if the cluster has used a file system within "+requests.FreshMark.String())
	flags.BoolVar(&f.retained, "retained", false, "also volumes of retained data, which no volume had any more")
	return command
}

func (p *plugin) runRebuild(ctx context.Context, f rebuildFlags) error {
	choice, err := f.choice()
	if err != nil {
		return err
	}
	i, err := p.locate(ctx, f.ledgerFlags)
	if err != nil {
		return err
	}
	lost := &requests.Lost{Cluster: f.cluster, Force: f.force}
	if lost.Cluster == "" {
		lost.Cluster = i.cluster
	}
	targets, err := i.targets()
	if err != nil {
		return err
	}
	items, others, err := i.runner.PlanRebuild(ctx, i.fileSystems, targets, *lost, rebuild.Rebuild{
		Cluster: rebuild.Cluster{UID: i.cluster, Provisioner: i.Provisioner},
		Choice:  choice, Namespace: *p.flags.Namespace, Retained: f.retained,
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
