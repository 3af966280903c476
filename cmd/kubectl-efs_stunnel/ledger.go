package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/api/requests"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
	"gnuthought.com/efs-stunnel/pkg/plugin/printing"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// jobsNote ends the help of the groups of commands that ask file systems.
const jobsNote = "\n\nEach command runs a Job on each file system, in the namespace of the installation, and deletes it."

// installation has the objects of a cluster, and the runner of its ledger Jobs, that the commands need.
type installation struct {
	connection
	*inspect.Snapshot
	runner      ledger.Runner
	targets     map[string]ports.Target
	cluster     string // the uid that ledgers have of it
	fileSystems []string
}

// onFileSystems completes a command that asks file systems: it adds their flags, and calls do with the installation.
func (p *plugin) onFileSystems(command *cobra.Command, do func(context.Context, installation, []string) error) *cobra.Command {
	var image string
	var ids []string
	command.Flags().StringVar(&image, "worker-image", "", "image of the Jobs (default: that of mount Jobs)")
	command.Flags().StringSliceVar(&ids, "file-system", nil, "ids of file systems (default: all of the table)")
	_ = command.RegisterFlagCompletionFunc("file-system", func(command *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.completeFileSystems(command, prefix)
	})
	command.RunE = func(command *cobra.Command, args []string) error {
		i, err := p.locate(command.Context(), image, ids)
		if err != nil {
			return err
		}
		return do(command.Context(), i, args)
	}
	return command
}

func (p *plugin) locate(ctx context.Context, image string, ids []string) (installation, error) {
	c, err := p.open()
	i := installation{connection: c}
	if err != nil {
		return i, err
	}
	i.Snapshot, err = inspect.Locate(ctx, c.client, inspect.Options{Namespace: p.system, Provisioner: p.provisioner, Now: c.now})
	if err != nil {
		return i, err
	}
	if i.targets, err = i.Targets(); err != nil {
		return i, err
	}
	if i.fileSystems, err = i.chosen(ids); err != nil {
		return i, err
	}
	settings, err := i.JobSettings(image)
	if err != nil {
		return i, err
	}
	i.runner = ledger.Runner{Client: c.client, Settings: settings, Aliases: i.Aliases, Used: i.isUsed, Waiting: p.say}
	system, err := c.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return i, fmt.Errorf("reading the uid of this cluster: %w", err)
	}
	i.cluster = string(system.UID)
	return i, nil
}

// isUsed reports whether volumes are on a server of one's own.
func (i installation) isUsed(ctx context.Context, fileSystem string) (bool, error) {
	if !i.targets[fileSystem].ClientCertificate {
		return false, nil
	}
	all, err := i.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("listing volumes on %s: %w", fileSystem, err)
	}
	return slices.ContainsFunc(all.Items, func(object corev1.PersistentVolume) bool {
		v := volumes.Read(&object, i.Provisioner)
		return v.Kind == volumes.Provisioned && v.FileSystemID == fileSystem
	}), nil
}

func (i installation) chosen(ids []string) ([]string, error) {
	all := slices.Sorted(maps.Keys(i.targets))
	if len(ids) == 0 {
		return all, nil
	}
	for _, id := range ids {
		if !slices.Contains(all, id) {
			return nil, fmt.Errorf("file system %s is not in the table: want %s", id, strings.Join(all, ", "))
		}
	}
	return ids, nil
}

// say prints a note to the user about a file system or a claim while a command runs.
func (p *plugin) say(about, message string) {
	fmt.Fprintf(p.streams.ErrOut, "%s: %s\n", printing.Line(about), printing.Line(message))
}

func (p *plugin) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(p.streams.ErrOut, "%s [y/N] ", printing.Line(question))
	answer, err := bufio.NewReader(p.streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.New("not confirmed: nothing was changed; --yes confirms")
	}
	return nil
}

// printRows prints a list, and that it is empty.
func printRows[T any](p *plugin, items []T, none string, rows [][]string) error {
	if len(items) == 0 && p.output == "" {
		fmt.Fprintln(p.streams.ErrOut, none)
	}
	return printing.WriteRows(p.streams.Out, p.output, items, rows)
}

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
	return printRows(p, items, "No ledger has such an owner.", ledger.OwnerRows(items, i.cluster))
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
