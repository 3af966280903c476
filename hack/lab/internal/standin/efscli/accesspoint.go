package efscli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

func (a *app) createAccessPointCommand() *cobra.Command {
	var r inventory.NewAccessPoint
	var owner *inventory.PosixUser
	var permissions string
	cmd := a.command("create-access-point", "Create an access point and print its id",
		func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			if owner != nil {
				r.CreationInfo = &inventory.CreationInfo{OwnerUID: owner.UID, OwnerGID: owner.GID, Permissions: permissions}
			}
			p, err := c.CreateAccessPoint(cmd.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), p.ID)
			return nil
		})
	flags := cmd.Flags()
	flags.StringVar(&r.FileSystemID, "file-system", "", "file system id (required)")
	flags.StringVar(&r.Path, "path", "/", "root directory")
	flags.Func("user", "`UID:GID` that all users become (default: users stay who they are)", parseUser(&r.PosixUser))
	flags.Func("owner", "`UID:GID` of a missing root directory (default: it must exist)", parseUser(&owner))
	flags.StringVar(&permissions, "permissions", "0755", "octal mode of a missing root directory, with --owner")
	require(cmd, "file-system")
	return cmd
}

// parseUser reads a flag's value into user.
func parseUser(user **inventory.PosixUser) func(text string) error {
	return func(text string) error {
		first, second, _ := strings.Cut(text, ":")
		uid, uidErr := strconv.ParseUint(first, 10, 32)
		gid, gidErr := strconv.ParseUint(second, 10, 32)
		if uidErr != nil || gidErr != nil {
			return errors.New("want UID:GID, two numbers from 0 to 4294967295")
		}
		*user = &inventory.PosixUser{UID: uint32(uid), GID: uint32(gid)}
		return nil
	}
}

func (a *app) updateAccessPointCommand() *cobra.Command {
	var state inventory.State
	cmd := a.command("update-access-point ACCESS-POINT", "Change an access point's state; only an available one accepts clients",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			return c.SetAccessPointState(cmd.Context(), args[0], state)
		})
	stateFlag(cmd.Flags(), &state)
	require(cmd, "state")
	return cmd
}

func (a *app) deleteAccessPointCommand() *cobra.Command {
	return a.command("delete-access-point ACCESS-POINT", "Delete an access point; its files stay",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			return c.DeleteAccessPoint(cmd.Context(), args[0])
		})
}
