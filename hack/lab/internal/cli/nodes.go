package cli

import (
	"context"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
)

func (a *app) nodeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Add, remove, stop and start nodes"}
	var zone string
	add := a.oneNode("add", "Add a node and wait until it is Ready", func(ctx context.Context, o *orchestrate.Orchestrator, name string) error {
		return o.AddNode(ctx, name, zone)
	})
	add.Flags().StringVar(&zone, "zone", "", "availability zone (default: the one with the fewest nodes)")
	var hard bool
	stop := a.oneNode("stop", "Shut a node down; its disk stays", func(ctx context.Context, o *orchestrate.Orchestrator, name string) error {
		return o.StopNode(ctx, name, hard)
	})
	stop.Flags().BoolVar(&hard, "hard", false, "pull the plug instead of asking")
	cmd.AddCommand(add, stop,
		a.oneNode("start", "Start a stopped node and wait until it is Ready", func(ctx context.Context, o *orchestrate.Orchestrator, name string) error {
			return o.StartNode(ctx, name)
		}),
		a.oneNode("remove", "Remove a node and its disk for good", func(ctx context.Context, o *orchestrate.Orchestrator, name string) error {
			return o.RemoveNode(ctx, name)
		}),
	)
	return cmd
}

func (a *app) oneNode(verb, short string, do func(context.Context, *orchestrate.Orchestrator, string) error) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NODE",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := a.orchestrator()
			if err != nil {
				return err
			}
			return do(cmd.Context(), o, args[0])
		},
	}
}
