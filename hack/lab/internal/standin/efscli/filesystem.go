package efscli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

func (a *app) createFileSystemCommand() *cobra.Command {
	var r world.NewFileSystem
	var tags []string
	var state string
	cmd := &cobra.Command{
		Use:   "create-file-system",
		Short: "Create a file system without mount targets and print its id",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.Tags, err = parseTags(tags); err != nil {
				return err
			}
			if r.State, err = parseState(state); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			fs, err := c.CreateFileSystem(cmd.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), fs.ID)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.ID, "id", "", "id, fs- and 8 to 40 hex digits (default random)")
	f.StringVar(&r.Name, "fs-name", "", "Name tag")
	f.StringVar(&r.CreationToken, "creation-token", "", "creation token (default the id)")
	f.StringVar(&r.Zone, "one-zone", "", "make it a One Zone file system of this zone")
	f.StringArrayVar(&tags, "tag", nil, "tag KEY=VALUE, repeatable")
	stateFlag(cmd, &state)
	return cmd
}

func (a *app) updateFileSystemCommand() *cobra.Command {
	var tags []string
	var state string
	var replicating, requireIAM bool
	cmd := &cobra.Command{
		Use:   "update-file-system FILE-SYSTEM",
		Short: "Change a file system's state, tags, role in a replication or demand for IAM",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var change world.FileSystemChange
			var err error
			if change.Tags, err = parseTags(tags); err != nil {
				return err
			}
			if state != "" {
				s, err := parseState(state)
				if err != nil {
					return err
				}
				change.State = &s
			}
			if cmd.Flags().Changed("replicating") {
				change.Replicating = &replicating
			}
			if cmd.Flags().Changed("require-iam") {
				change.RequireIAM = &requireIAM
			}
			if change.State == nil && change.Replicating == nil && change.RequireIAM == nil && len(change.Tags) == 0 {
				return errors.New("nothing to change: give --state, --tag, --replicating or --require-iam")
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.UpdateFileSystem(cmd.Context(), args[0], change)
		},
	}
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "tag KEY=VALUE to set, KEY= to remove, repeatable")
	cmd.Flags().BoolVar(&replicating, "replicating", false, "destination of a replication, or not")
	cmd.Flags().BoolVar(&requireIAM, "require-iam", false, "let new connections in only with a valid IAM signature, or let all in")
	stateFlag(cmd, &state)
	return cmd
}

func (a *app) deleteFileSystemCommand() *cobra.Command {
	var cascade bool
	cmd := &cobra.Command{
		Use:   "delete-file-system FILE-SYSTEM",
		Short: "Delete a file system, its access points and all its files",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.DeleteFileSystem(cmd.Context(), args[0], cascade)
		},
	}
	cmd.Flags().BoolVar(&cascade, "cascade", false, "delete its mount targets too; otherwise one that has any is refused")
	return cmd
}

func stateFlag(cmd *cobra.Command, state *string) {
	cmd.Flags().StringVar(state, "state", "", "life-cycle state: "+strings.Join(stateNames(), ", "))
}

func stateNames() []string {
	names := make([]string, 0, len(world.States()))
	for _, s := range world.States() {
		names = append(names, string(s))
	}
	return names
}

func parseState(text string) (world.State, error) {
	if text == "" {
		return "", nil
	}
	return world.State(text), checkOneOf("state", text, stateNames())
}

func parseTags(list []string) (map[string]string, error) {
	tags := map[string]string{}
	for _, text := range list {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--tag %q: want KEY=VALUE", text)
		}
		tags[key] = value
	}
	return tags, nil
}
