package efscli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

func (a *app) createAccessPointCommand() *cobra.Command {
	var r world.NewAccessPoint
	var user, owner, permissions, state string
	cmd := &cobra.Command{
		Use:   "create-access-point --file-system FILE-SYSTEM",
		Short: "Create an access point and print its id",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.State, err = parseState(state); err != nil {
				return err
			}
			if err := describeUsers(&r, user, owner, permissions); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			p, err := c.CreateAccessPoint(cmd.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), p.ID)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.FileSystemID, "file-system", "", "file system id (required)")
	f.StringVar(&r.Name, "ap-name", "", "Name tag")
	f.StringVar(&r.Path, "path", "/", "root directory")
	f.StringVar(&user, "user", "", "UID:GID that all users become (default: users stay who they are)")
	f.StringVar(&owner, "owner", "", "UID:GID of a missing root directory (default: it must exist)")
	f.StringVar(&permissions, "permissions", "0755", "octal mode of a missing root directory, with --owner")
	stateFlag(cmd, &state)
	required(cmd, "file-system")
	return cmd
}

func describeUsers(r *world.NewAccessPoint, user, owner, permissions string) error {
	if user != "" {
		uid, gid, err := parseIDs("user", user)
		if err != nil {
			return err
		}
		r.PosixUser = &world.PosixUser{UID: uid, GID: gid}
	}
	if owner != "" {
		uid, gid, err := parseIDs("owner", owner)
		if err != nil {
			return err
		}
		r.CreationInfo = &world.CreationInfo{OwnerUID: uid, OwnerGID: gid, Permissions: permissions}
	}
	return nil
}

func parseIDs(flag, text string) (uid, gid uint32, err error) {
	first, second, _ := strings.Cut(text, ":")
	u, uidErr := strconv.ParseUint(first, 10, 32)
	g, gidErr := strconv.ParseUint(second, 10, 32)
	if uidErr != nil || gidErr != nil {
		return 0, 0, fmt.Errorf("--%s %q: want UID:GID, two numbers from 0 to 4294967295", flag, text)
	}
	return uint32(u), uint32(g), nil
}

func (a *app) updateAccessPointCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:   "update-access-point ACCESS-POINT --state STATE",
		Short: "Change an access point's state; only an available one lets clients in",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := parseState(state); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.UpdateAccessPoint(cmd.Context(), args[0], admin.AccessPointChange{State: state})
		},
	}
	stateFlag(cmd, &state)
	required(cmd, "state")
	return cmd
}

func (a *app) deleteAccessPointCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete-access-point ACCESS-POINT",
		Short: "Delete an access point; its files stay",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.DeleteAccessPoint(cmd.Context(), args[0])
		},
	}
}
