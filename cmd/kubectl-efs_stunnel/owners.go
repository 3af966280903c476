package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
)

func (p *plugin) owners() *cobra.Command {
	const short = "List the owners of directories, or release those of a cluster that is gone"
	command := &cobra.Command{Use: "owners", Short: short, Long: short + "." + jobsNote}
	command.AddCommand(p.ownersList(), p.ownersRelease())
	return command
}

func (p *plugin) ownersList() *cobra.Command {
	return p.onFileSystems(&cobra.Command{
		Use:     "list",
		Short:   "List the ledgers: which volumes of which clusters own which directories",
		Example: "  kubectl efs-stunnel owners list\n  kubectl efs-stunnel owners list -n team -o json",
	}, func(ctx context.Context, i installation, _ []string) error {
		items, failed := i.runner.ListOwners(ctx, i.fileSystems, nil)
		if namespace := *p.flags.Namespace; namespace != "" {
			items = slices.DeleteFunc(items, func(item ledger.OwnerItem) bool { return item.Namespace != namespace })
		}
		return errors.Join(failed, p.printOwners(ctx, i, items))
	})
}

// printOwners reads the cluster's objects after the ledgers: an owner is there before its volume.
func (p *plugin) printOwners(ctx context.Context, i installation, items []ledger.OwnerItem) error {
	snapshot, err := inspect.Gather(ctx, i.client, inspect.Options{Namespace: i.Namespace, Provisioner: i.Provisioner, Now: i.now})
	if err != nil {
		return err
	}
	objects := ledger.Objects{Cluster: i.cluster, Volumes: snapshot.Volumes, Claims: snapshot.Claims, Complete: true}
	for _, unread := range snapshot.Unread {
		if unread.Resource == "persistentvolumes" || unread.Resource == "persistentvolumeclaims" {
			objects.Complete = false
			p.say("you have no right to", unread.String())
		}
	}
	objects.SetStates(items)
	return printRows(p, items, "No ledger has such an owner.", func(items []ledger.OwnerItem) [][]string {
		return ledger.OwnerRows(items, i.cluster)
	})
}

func (p *plugin) ownersRelease() *cobra.Command {
	var release requests.Release
	var yes bool
	command := p.onFileSystems(&cobra.Command{
		Use:   "release --cluster UID",
		Short: "Release the owners of a cluster that is gone",
		Long: "Release the owners of a cluster that is gone: its data counts as retained from then on, and no volume of\n" +
			"another cluster gets the right to remove it. Without --yes it only lists them.",
		Example: "  kubectl efs-stunnel owners release --cluster 01234567-89ab-cdef-0123-456789abcdef",
		PreRunE: func(*cobra.Command, []string) error {
			if release.Cluster == "" {
				return errors.New("--cluster is missing: want the uid of the cluster that is gone, as kubectl efs-stunnel owners list shows it")
			}
			return nil
		},
	}, func(ctx context.Context, i installation, _ []string) error {
		if release.Cluster == i.cluster {
			return fmt.Errorf("--cluster %s is this cluster: its manager releases owners itself", release.Cluster)
		}
		return p.release(ctx, i, release, yes)
	})
	command.Flags().StringVar(&release.Cluster, "cluster", "", "uid of the cluster: that of its namespace kube-system")
	command.Flags().BoolVar(&release.Force, "force", false, "also if the cluster has used a file system within "+requests.FreshMark.String())
	command.Flags().BoolVar(&yes, "yes", false, "release them; without it they are only listed")
	return command
}

// release lists first: a cluster that lives on one file system keeps its owners on all.
func (p *plugin) release(ctx context.Context, i installation, release requests.Release, yes bool) error {
	release.DryRun = true
	items, err := i.runner.ListOwners(ctx, i.fileSystems, &release)
	if err != nil {
		return err
	}
	if !yes || len(items) == 0 {
		if len(items) > 0 {
			p.say("dry run", fmt.Sprintf("--yes releases these %d owners", len(items)))
		}
		return p.printOwners(ctx, i, items)
	}
	release.DryRun = false
	items, failed := i.runner.ListOwners(ctx, i.fileSystems, &release)
	released := 0
	for _, item := range items {
		if item.Released {
			released++
		} else {
			p.say(item.FileSystem+" "+item.Path, item.Problem)
		}
	}
	p.say("cluster "+release.Cluster, fmt.Sprintf("%d of %d owners are released", released, len(items)))
	if released < len(items) {
		failed = errors.Join(failed, errors.New("some owners are not released"))
	}
	return failed
}
