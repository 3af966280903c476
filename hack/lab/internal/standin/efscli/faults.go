package efscli

import (
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
)

func (a *app) setFaultCommand() *cobra.Command {
	var f efsapi.Fault
	cmd := a.command("set KIND", "Make the API fail",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			f.Kind = efsapi.Kind(args[0])
			// To the API, 0 means that the flag was not given.
			if cmd.Flags().Changed("next") && f.Next < 1 {
				return fmt.Errorf("--next %d: want at least 1", f.Next)
			}
			if cmd.Flags().Changed("rate") && (f.Rate <= 0 || f.Rate > 1) {
				return fmt.Errorf("--rate %g: want a fraction above 0, at most 1", f.Rate)
			}
			return c.SetFault(cmd.Context(), f)
		})
	cmd.Long = "Make the API fail, at every call unless --next or --rate is given:\n" +
		"  throttle       ThrottlingException\n" +
		"  server-error   HTTP 500\n" +
		"  access-denied  AccessDeniedException\n" +
		"  empty          success that lists nothing\n" +
		"  hang           no answer until the client gives up\n" +
		"  page-size      at most --size entries per page"
	cmd.Example = "  lab efs faults set throttle --next 5\n  lab efs faults set page-size --size 1"
	flags := cmd.Flags()
	flags.StringVar(&f.Operation, "operation", "", "only calls of one operation: "+oneof.Join(efsapi.Operations()))
	flags.IntVar(&f.Next, "next", 0, "only this many calls from now on")
	flags.Float64Var(&f.Rate, "rate", 0, "only this fraction of calls, evenly spread: 0.25 is every fourth")
	flags.IntVar(&f.Size, "size", 0, "entries per page, for page-size")
	return cmd
}

func (a *app) clearFaultsCommand() *cobra.Command {
	return a.command("clear", "End all faults of the API, and set mount targets to mode ok with valid certificates and no delay",
		func(cmd *cobra.Command, c *admin.Client, _ []string) error { return c.ClearFaults(cmd.Context()) })
}
