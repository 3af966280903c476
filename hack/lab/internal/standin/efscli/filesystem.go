package efscli

import (
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

func (a *app) createFileSystemCommand() *cobra.Command {
	var r inventory.NewFileSystem
	cmd := a.command("create-file-system", "Create a file system without mount targets and print its id",
		func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			fs, err := c.CreateFileSystem(cmd.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), fs.ID)
			return nil
		})
	flags := cmd.Flags()
	flags.StringVar(&r.ID, "id", "", "id, fs- and 8 to 40 hex digits (default random)")
	flags.StringVar(&r.Name, "fs-name", "", "Name tag")
	flags.StringVar(&r.Zone, "one-zone", "", "make it a One Zone file system of this zone")
	flags.StringToStringVar(&r.Tags, "tag", nil, "tag KEY=VALUE, repeatable")
	stateFlag(flags, &r.State)
	return cmd
}

func (a *app) updateFileSystemCommand() *cobra.Command {
	var change inventory.FileSystemChange
	var replicating, requireIAM bool
	cmd := a.command("update-file-system FILE-SYSTEM", "Change a file system's state, tags, role in a replication or requirement of IAM",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			if cmd.Flags().Changed("replicating") {
				change.Replicating = &replicating
			}
			if cmd.Flags().Changed("require-iam") {
				change.RequireIAM = &requireIAM
			}
			return c.UpdateFileSystem(cmd.Context(), args[0], change)
		})
	flags := cmd.Flags()
	flags.StringToStringVar(&change.Tags, "tag", nil, "tag KEY=VALUE to set, KEY= to remove, repeatable")
	flags.BoolVar(&replicating, "replicating", false, "destination of a replication, or not")
	flags.BoolVar(&requireIAM, "require-iam", false, "accept new connections only with a valid IAM signature, or accept all")
	stateFlag(flags, &change.State)
	cmd.MarkFlagsOneRequired("state", "tag", "replicating", "require-iam")
	return cmd
}

func (a *app) deleteFileSystemCommand() *cobra.Command {
	var cascade bool
	cmd := a.command("delete-file-system FILE-SYSTEM", "Delete a file system, its access points and all its files",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			return c.DeleteFileSystem(cmd.Context(), args[0], cascade)
		})
	cmd.Flags().BoolVar(&cascade, "cascade", false, "delete its mount targets, too; otherwise a file system that has any is kept")
	return cmd
}
