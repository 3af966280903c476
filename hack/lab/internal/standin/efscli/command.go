// Package efscli is the command tree `lab efs`, which reads and changes a running stand-in through
// its admin socket.
package efscli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

// app has the state that all commands share.
type app struct {
	socket func() (string, error)
}

// New makes the command tree. The socket's path is looked up only when a command runs.
func New(socket func() (string, error)) *cobra.Command {
	a := &app{socket}
	return group("efs", "Show and change the lab's stand-in for Amazon EFS",
		a.listCommand(), a.statusCommand(),
		a.createFileSystemCommand(), a.updateFileSystemCommand(), a.deleteFileSystemCommand(),
		a.createMountTargetCommand(), a.updateMountTargetCommand(), a.deleteMountTargetCommand(),
		a.createAccessPointCommand(), a.updateAccessPointCommand(), a.deleteAccessPointCommand(),
		group("faults", "Make the API fail, or end all faults", a.setFaultCommand(), a.clearFaultsCommand()),
	)
}

// group returns a command that has only subcommands.
func group(name, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // makes cobra check Args
	}
	cmd.AddCommand(commands...)
	return cmd
}

// command returns a command that calls the stand-in. It takes one argument for each word of use after
// its name.
func (a *app) command(use, short string, run func(cmd *cobra.Command, c *admin.Client, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(len(strings.Fields(use)) - 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			socket, err := a.socket()
			if err != nil {
				return err
			}
			return run(cmd, admin.NewClient(socket), args)
		},
	}
}

func stateFlag(flags *pflag.FlagSet, state *inventory.State) {
	flags.Var(oneof.Flag(state, inventory.States()), "state", "life-cycle state: "+oneof.Join(inventory.States()))
}

// require marks flags without which cobra refuses to run the command.
func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that this package did not define
		}
	}
}
