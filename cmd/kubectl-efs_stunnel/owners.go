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
	command := &cobra.Command{
		Use:   "owners",
		Short: "List the owners of directories, or release those of a cluster that is gone",
		Long: "List the owners of directories, or release those of a cluster that is gone.\n\n" +
			"Each command runs a Job on each file system, in the namespace of the installation, and deletes it.",
	}
	command.AddCommand(p.ownersList(), p.ownersRelease())
	return command
}

func (p *plugin) ownersList() *cobra.Command {
	var l ledgerFlags
	command := &cobra.Command{
		Use:               "list",
		Short:             "List the ledgers: which volumes of which clusters own which directories",
		Example:           "  kubectl efs-stunnel owners list\n  kubectl efs-stunnel owners list -n team -o json",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			i, err := p.locate(command.Context(), l)
			if err != nil {
				return err
			}
			items, failed := i.runner.ListOwners(command.Context(), i.fileSystems)
			if namespace := *p.flags.Namespace; namespace != "" {
				items = slices.DeleteFunc(items, func(item ledger.OwnerItem) bool { return item.Namespace != namespace })
			}
			return errors.Join(failed, p.printOwners(command.Context(), i, items))
		},
	}
	l.add(command, p)
	return command
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
	if items == nil {
		items = []ledger.OwnerItem{}
	}
	objects.SetStates(items)
	if len(items) == 0 && p.output == "" {
		fmt.Fprintln(p.streams.ErrOut, "No ledger has such an owner.")
	}
	return inspect.WriteRows(p.streams.Out, p.output, items, func(items []ledger.OwnerItem) [][]string {
		return ledger.OwnerRows(items, i.cluster)
	})
}

func (p *plugin) ownersRelease() *cobra.Command {
	var l ledgerFlags
	var release requests.Release
	var yes bool
	command := &cobra.Command{
		Use:   "release --cluster UID",
		Short: "Release the owners of a cluster that is gone",
		Long: "Release the owners of a cluster that is gone: its data counts as retained from then on, and no volume of\n" +
			"another cluster gets the right to remove it. Without --yes it only lists them.",
		Example:           "  kubectl efs-stunnel owners release --cluster 01234567-89ab-cdef-0123-456789abcdef",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			if release.Cluster == "" {
				return errors.New("--cluster is missing: want the uid of the cluster that is gone, as kubectl efs-stunnel owners list shows it")
			}
			i, err := p.locate(command.Context(), l)
			if err != nil {
				return err
			}
			if release.Cluster == i.cluster {
				return fmt.Errorf("--cluster %s is this cluster: its manager releases owners itself", release.Cluster)
			}
			return p.release(command.Context(), i, release, yes)
		},
	}
	l.add(command, p)
	command.Flags().StringVar(&release.Cluster, "cluster", "", "uid of the cluster: that of its namespace kube-system")
	command.Flags().BoolVar(&release.Force, "force", false, "also if the cluster has used a file system within "+requests.FreshMark.String())
	command.Flags().BoolVar(&yes, "yes", false, "release them; without it they are only listed")
	return command
}

// release lists first: a cluster that lives on one file system keeps its owners on all.
func (p *plugin) release(ctx context.Context, i installation, release requests.Release, yes bool) error {
	release.DryRun = true
	items, err := i.runner.ReleaseCluster(ctx, i.fileSystems, release)
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
	items, failed := i.runner.ReleaseCluster(ctx, i.fileSystems, release)
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
