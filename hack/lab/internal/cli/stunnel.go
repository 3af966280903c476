package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

func (a *app) stunnelCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stunnel",
		Short: "Fetch only Debian's stunnel, install nothing, and print a program that runs it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := orchestrate.Orchestrator{Steps: step.NewPrinter(cmd.ErrOrStderr())}
			program, err := o.Stunnel(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), program)
			return err
		},
	}
}
