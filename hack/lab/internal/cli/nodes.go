package cli

import (
	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
)

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add, remove, stop and start nodes"}
	var zone string
	add := a.command("add NODE", "Add a node and wait until it is Ready",
		func(cmd *cobra.Command, o *orchestrate.Orchestrator, args []string) error {
			return o.AddNode(cmd.Context(), args[0], zone)
		})
	add.Flags().StringVar(&zone, "zone", "", "availability zone (default: the one with the fewest nodes)")
	var hard bool
	stop := a.command("stop NODE", "Shut a node down; its disk is kept",
		func(cmd *cobra.Command, o *orchestrate.Orchestrator, args []string) error {
			return o.StopNode(cmd.Context(), args[0], hard)
		})
	stop.Flags().BoolVar(&hard, "hard", false, "power the machine off without a shutdown")
	cmd.AddCommand(add, stop,
		a.command("start NODE", "Start a stopped node and wait until it is Ready",
			func(cmd *cobra.Command, o *orchestrate.Orchestrator, args []string) error {
				return o.StartNode(cmd.Context(), args[0])
			}),
		a.command("remove NODE", "Remove a node and its disk",
			func(cmd *cobra.Command, o *orchestrate.Orchestrator, args []string) error {
				return o.RemoveNode(cmd.Context(), args[0])
			}),
	)
	return cmd
}
