package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/plugin/ledger"
)

// jobsNote ends the help of the groups of commands that ask file systems.
const jobsNote = "\n\nEach command runs a Job on each file system, in the namespace of the installation, and deletes it."

// installation has the objects of a cluster, and the runner of its ledger Jobs, that the commands need.
type installation struct {
	connection
	*inspect.Snapshot
	runner      ledger.Runner
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
	if err := inspect.CheckFormat(p.output); err != nil {
		return installation{}, err
	}
	c, err := p.connect(p.flags)
	if err != nil {
		return installation{}, err
	}
	i := installation{connection: c}
	i.Snapshot, err = inspect.Locate(ctx, c.client, inspect.Options{Namespace: p.system, Provisioner: p.provisioner, Now: c.now})
	if err != nil {
		return i, err
	}
	if i.fileSystems, err = i.chosen(ids); err != nil {
		return i, err
	}
	settings, err := i.JobSettings(image)
	if err != nil {
		return i, err
	}
	i.runner = ledger.Runner{Client: c.client, Settings: settings, Aliases: i.Aliases, Waiting: p.say}
	system, err := c.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return i, fmt.Errorf("reading the uid of this cluster: %w", err)
	}
	i.cluster = string(system.UID)
	return i, nil
}

// chosen returns the file systems of the flag, or all.
func (i installation) chosen(ids []string) ([]string, error) {
	all, err := i.FileSystems()
	if err != nil || len(ids) == 0 {
		return all, err
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
	fmt.Fprintf(p.streams.ErrOut, "%s: %s\n", inspect.Line(about), inspect.Line(message))
}

var errNotConfirmed = errors.New("not confirmed: nothing was changed; --yes confirms")

// confirm asks, unless the user has confirmed by the flag.
func (p *plugin) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(p.streams.ErrOut, "%s [y/N] ", inspect.Line(question))
	answer, err := bufio.NewReader(p.streams.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errNotConfirmed
	}
	return nil
}

// printRows prints a list, and that it is empty.
func printRows[T any](p *plugin, items []T, none string, rows func([]T) [][]string) error {
	if len(items) == 0 && p.output == "" {
		fmt.Fprintln(p.streams.ErrOut, none)
	}
	return inspect.WriteRows(p.streams.Out, p.output, append([]T{}, items...), rows)
}
