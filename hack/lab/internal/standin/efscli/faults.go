package efscli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
)

func (a *app) faultsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Make the API misbehave, or end all faults",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // makes cobra check Args
	}
	cmd.AddCommand(a.setFaultCommand(), a.clearFaultsCommand())
	return cmd
}

func (a *app) setFaultCommand() *cobra.Command {
	var f efsapi.Fault
	cmd := &cobra.Command{
		Use:   "set KIND",
		Short: "Make the API misbehave",
		Long: "Make the API misbehave, at every call unless --next or --rate says otherwise:\n" +
			"  throttle       ThrottlingException\n" +
			"  server-error   HTTP 500\n" +
			"  access-denied  AccessDeniedException\n" +
			"  empty          success that lists nothing\n" +
			"  hang           no answer until the client gives up\n" +
			"  page-size      at most --size entries per page",
		Example: "  lab efs faults set throttle --next 5\n  lab efs faults set page-size --size 1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Kind = efsapi.Kind(args[0])
			if cmd.Flags().Changed("next") && f.Next < 1 {
				return fmt.Errorf("--next %d: want at least 1", f.Next)
			}
			if cmd.Flags().Changed("rate") && (f.Rate <= 0 || f.Rate > 1) {
				return fmt.Errorf("--rate %g: want a fraction above 0, at most 1", f.Rate)
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.SetFault(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&f.Operation, "operation", "", "only calls of one operation: "+strings.Join(efsapi.Operations(), ", "))
	cmd.Flags().IntVar(&f.Next, "next", 0, "only the next so many calls")
	cmd.Flags().Float64Var(&f.Rate, "rate", 0, "only this fraction of calls, evenly spread: 0.25 is every fourth")
	cmd.Flags().IntVar(&f.Size, "size", 0, "entries per page, for page-size")
	return cmd
}

func (a *app) clearFaultsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "clear",
		Short: "End all faults of the API, and bring mount targets back to mode ok with good certificates",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return c.ClearFaults(cmd.Context())
		},
	}
}
