package efscli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/oneof"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/terminator"
)

func (a *app) createMountTargetCommand() *cobra.Command {
	var r inventory.NewMountTarget
	cmd := a.command("create-mount-target", "Create a mount target and print its id and address",
		func(cmd *cobra.Command, c *admin.Client, _ []string) error {
			t, err := c.CreateMountTarget(cmd.Context(), r)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), t.ID, strings.Join(t.Addresses(), " "))
			return nil
		})
	cmd.Flags().StringVar(&r.FileSystemID, "file-system", "", "file system id (required)")
	cmd.Flags().StringVar(&r.Zone, "zone", "", "zone name (required)")
	cmd.Flags().Var(oneof.Flag(&r.AddressType, inventory.AddressTypes()), "ip-address-type",
		oneof.Join(inventory.AddressTypes())+"; default is ipv6 in a lab with --ipv6-only, else ipv4")
	require(cmd, "file-system", "zone")
	return cmd
}

func (a *app) updateMountTargetCommand() *cobra.Command {
	var change admin.MountTargetChange
	cmd := a.command("update-mount-target MOUNT-TARGET", "Change what the API reports of a mount target, or how it treats clients",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			return c.UpdateMountTarget(cmd.Context(), args[0], change)
		})
	cmd.Long = "Change what the API reports of a mount target (--state), or how it treats its clients:\n" +
		"  --mode ok       serve\n" +
		"  --mode refuse   no listener; open connections are closed\n" +
		"  --mode reset    accept and reset; open connections are reset\n" +
		"  --mode drop     a black hole: packets are dropped, also those of open connections\n" +
		"  --mode silent   TCP and TLS work, but nothing is answered; open connections stall\n" +
		"--delay 5ms holds back what is sent in each direction for that time, so that a round trip takes 10 ms more. It limits no throughput.\n" +
		"--plain serves new clients without TLS, too, as EFS does.\n" +
		"--partitions 3 spreads new connections over three partitions, on one of which a client's requests work, and answers program 400123. " +
		"--rate 1000000 limits what each connection gets to as many bytes per second. 0 ends either."
	flags := cmd.Flags()
	stateFlag(flags, &change.State)
	flags.Var(oneof.Flag(&change.Mode, terminator.Modes()), "mode", oneof.Join(terminator.Modes()))
	flags.Var(oneof.Flag(&change.Certificate, terminator.CertificateKinds()), "certificate",
		"of new connections: "+oneof.Join(terminator.CertificateKinds()))
	flags.Func("delay", "`time` for which bytes are held back in each direction; 0 ends it", func(text string) error {
		delay, err := time.ParseDuration(text)
		change.Delay = &delay
		return err
	})
	partitions := terminator.Partitions{Answer: terminator.AnswerReady}
	flags.IntVar(&partitions.Count, "partitions", 0, "`number` of partitions; 0 for a server that does not know them")
	flags.Var(oneof.Flag(&partitions.Answer, terminator.Answers()), "partition-answer", "with --partitions: "+oneof.Join(terminator.Answers()))
	flags.Uint32Var(&partitions.Lanes, "partition-lanes", 5, "with --partitions: `connections` that a client may have")
	flags.Uint32Var(&partitions.BytesPerSecond, "partition-rate", 300<<20, "with --partitions: `bytes` per second from which it may have them")
	rate, plain := 0, false
	flags.BoolVar(&plain, "plain", false, "serve new clients without TLS, too; --plain=false ends it")
	flags.IntVar(&rate, "rate", 0, "`bytes` per second that each connection gets; 0 is no limit")
	cmd.PreRun = func(*cobra.Command, []string) {
		if flags.Changed("partitions") {
			change.Partitions = &partitions
		}
		if flags.Changed("rate") {
			change.Rate = &rate
		}
		if flags.Changed("plain") {
			change.Plain = &plain
		}
	}
	cmd.MarkFlagsOneRequired("state", "mode", "certificate", "delay", "plain", "partitions", "rate")
	return cmd
}

func (a *app) deleteMountTargetCommand() *cobra.Command {
	return a.command("delete-mount-target MOUNT-TARGET", "Delete a mount target and its address",
		func(cmd *cobra.Command, c *admin.Client, args []string) error {
			return c.DeleteMountTarget(cmd.Context(), args[0])
		})
}
