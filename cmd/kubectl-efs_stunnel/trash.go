package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
)

func (p *plugin) trash() *cobra.Command {
	const short = "List, restore or remove the directories of deleted volumes"
	command := &cobra.Command{Use: "trash", Short: short, Long: short + "." + jobsNote}
	command.AddCommand(p.trashList(), p.trashRestore(), p.trashEmpty())
	return command
}

func (p *plugin) trashList() *cobra.Command {
	return p.onFileSystems(&cobra.Command{
		Use:     "list",
		Short:   "List what is in the trash, whose it was, and how long it is kept",
		Example: "  kubectl efs-stunnel trash list\n  kubectl efs-stunnel trash list -n team -o json",
	}, func(ctx context.Context, i installation, _ []string) error {
		items, failed := i.runner.ListTrash(ctx, i.fileSystems)
		if namespace := *p.flags.Namespace; namespace != "" {
			items = ledger.InNamespace(items, namespace)
		}
		return errors.Join(failed, p.printTrash(i, items))
	})
}

func (p *plugin) printTrash(i installation, items []ledger.TrashItem) error {
	return printRows(p, items, "Nothing found in the trash.", func(items []ledger.TrashItem) [][]string {
		return ledger.TrashRows(items, i.cluster, i.Now)
	})
}

func (p *plugin) trashEmpty() *cobra.Command {
	var choice ledger.TrashChoice
	var all, yes bool
	command := p.onFileSystems(&cobra.Command{
		Use:   "empty (--all | -n NAMESPACE | --claim NAME)",
		Short: "Remove directories from the trash before their time",
		Long: "Remove directories from the trash before their time, also those that are kept forever.\n" +
			"They cannot be restored any more. Those of other clusters stay, unless one is named by its uid.",
		Example: "  kubectl efs-stunnel trash empty -n team\n  kubectl efs-stunnel trash empty --claim reports -n team --yes",
		PreRunE: func(*cobra.Command, []string) error {
			choice.Namespace = *p.flags.Namespace
			switch {
			case all && (choice.Namespace != "" || len(choice.Claims) > 0):
				return errors.New("--all: want neither --namespace nor --claim with it")
			case !all && choice.Namespace == "" && len(choice.Claims) == 0:
				return errors.New("nothing is chosen: want --all, --namespace or --claim")
			case len(choice.Claims) > 0:
				choice.Namespace = p.namespace()
			}
			return nil
		},
	}, func(ctx context.Context, i installation, _ []string) error {
		if choice.Cluster == "" {
			choice.Cluster = i.cluster
		}
		return p.empty(ctx, i, choice, yes)
	})
	command.Flags().BoolVar(&all, "all", false, "everything that the cluster has in the trash")
	command.Flags().StringSliceVar(&choice.Claims, "claim", nil, "names or uids of deleted claims of the namespace")
	command.Flags().StringVar(&choice.Cluster, "cluster", "", "uid of another cluster (default: this one)")
	command.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	return command
}

func (p *plugin) empty(ctx context.Context, i installation, choice ledger.TrashChoice, yes bool) error {
	items, err := i.runner.ListTrash(ctx, i.fileSystems)
	if err != nil {
		return err
	}
	chosen, err := choice.Select(items)
	if err != nil {
		return err
	}
	if err := p.printTrash(i, chosen); err != nil || len(chosen) == 0 {
		return err
	}
	if err := p.confirm(yes, fmt.Sprintf("Remove %d directories for good?", len(chosen))); err != nil {
		return err
	}
	answers, failed := i.runner.Ask(ctx, choice.Removal(chosen))
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		end := answers[id].End
		if end.Swept != nil {
			p.say(id, fmt.Sprintf("%d directories of volumes are removed, with %d files and directories", end.Swept.Volumes, end.Swept.Removed))
		}
		if end.Stopped {
			p.say(id, "the Job's time was over: what is left of these directories is removed by the next sweep")
		}
	}
	return failed
}
