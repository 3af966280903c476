package efscli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

func (a *app) createMountTargetCommand() *cobra.Command {
	var r world.NewMountTarget
	var state string
	cmd := &cobra.Command{
		Use:   "create-mount-target --file-system FILE-SYSTEM --zone ZONE",
		Short: "Create a mount target and print its id and address",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if r.State, err = parseState(state); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			t, err := c.CreateMountTarget(cmd.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), t.ID, t.Address)
			return nil
		},
	}
	cmd.Flags().StringVar(&r.FileSystemID, "file-system", "", "file system id (required)")
	cmd.Flags().StringVar(&r.Zone, "zone", "", "zone name (required)")
	stateFlag(cmd, &state)
	required(cmd, "file-system", "zone")
	return cmd
}

func (a *app) updateMountTargetCommand() *cobra.Command {
	var change admin.MountTargetChange
	var mode, certificate string
	cmd := &cobra.Command{
		Use:   "update-mount-target MOUNT-TARGET",
		Short: "Change what the API says of a mount target, or how it treats clients",
		Long: "Change what the API says of a mount target (--state), or how it treats its clients:\n" +
			"  --mode ok       serve\n" +
			"  --mode refuse   no listener; live connections are closed\n" +
			"  --mode reset    accept and reset; live connections are reset\n" +
			"  --mode drop     a black hole: packets vanish, also those of live connections\n" +
			"  --mode silent   TCP and TLS work, then nothing comes; live connections stall",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := parseState(change.State); err != nil {
				return err
			}
			change.Mode, change.Certificate = terminator.Mode(mode), terminator.CertificateKind(certificate)
			if mode != "" {
				if err := checkOneOf("mode", change.Mode, terminator.Modes()); err != nil {
					return err
				}
			}
			if certificate != "" {
				if err := checkOneOf("certificate", change.Certificate, terminator.CertificateKinds()); err != nil {
					return err
				}
			}
			if (change == admin.MountTargetChange{}) {
				return errors.New("nothing to change: give --state, --mode or --certificate")
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.UpdateMountTarget(cmd.Context(), args[0], change)
		},
	}
	stateFlag(cmd, &change.State)
	cmd.Flags().StringVar(&mode, "mode", "", "ok, refuse, reset, drop or silent")
	cmd.Flags().StringVar(&certificate, "certificate", "", "of new connections: ok, wrong-name, expired or untrusted")
	return cmd
}

func (a *app) deleteMountTargetCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete-mount-target MOUNT-TARGET",
		Short: "Delete a mount target and its address",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.DeleteMountTarget(cmd.Context(), args[0])
		},
	}
}

// required marks flags without which cobra refuses to run the command.
func required(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that this package did not define
		}
	}
}
