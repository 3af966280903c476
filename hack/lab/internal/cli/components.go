package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

func (a *app) componentsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "components",
		Short: "Build only the Kubernetes programs and etcd, and print their folder",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := orchestrate.Orchestrator{Steps: step.NewPrinter(cmd.ErrOrStderr())}
			dir, err := o.Components(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), dir)
			return err
		},
	}
}
