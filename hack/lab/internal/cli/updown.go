package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/output"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// upFlags are the settings that can be changed. Flags that are not given keep the settings that the
// lab was last started with.
type upFlags struct {
	*state.Settings
	nodes    int
	ipv6Only bool
}

func (a *app) upCommand() *cobra.Command {
	cmd := a.command("up", "Start the lab, or repair it; parts that run with the wanted settings are kept",
		func(cmd *cobra.Command, o *orchestrate.Orchestrator, _ []string) error {
			return o.Up(cmd.Context(), func(s *state.Settings, isNew bool) error { return applyUpFlags(cmd.Flags(), s, isNew) })
		})
	newUpFlags(cmd.Flags(), new(state.DefaultSettings()))
	return cmd
}

// newUpFlags makes flags that set s.
func newUpFlags(flags *pflag.FlagSet, s *state.Settings) *upFlags {
	f := &upFlags{s, len(s.Nodes), s.IPv6Only}
	flags.IntVar(&f.nodes, "nodes", f.nodes, "how many nodes a new lab gets; for an existing one use lab node")
	flags.BoolVar(&f.ipv6Only, "ipv6-only", f.ipv6Only, "give nodes, pods and Services of a new lab addresses of IPv6 only")
	flags.IntVar(&f.NodeMemoryMiB, "node-memory", f.NodeMemoryMiB, "memory of each node in MiB, from its next start")
	flags.IntVar(&f.NodeCPUs, "node-cpus", f.NodeCPUs, "virtual processors of each node, from its next start")
	flags.IntVar(&f.APIServerPort, "apiserver-port", f.APIServerPort, "port of 127.0.0.1 for the apiserver (0 = any free one)")
	flags.IntVar(&f.RegistryPort, "registry-port", f.RegistryPort, "port of 127.0.0.1 for the registry (0 = any free one)")
	flags.IntVar(&f.EFSAPIPort, "efs-api-port", f.EFSAPIPort, "port of 127.0.0.1 for the EFS API (0 = any free one)")
	flags.Float64Var(&f.ControllerManagerQPS, "controller-manager-qps", f.ControllerManagerQPS, "the controller-manager's requests per second")
	flags.IntVar(&f.ControllerManagerBurst, "controller-manager-burst", f.ControllerManagerBurst, "the controller-manager's requests at once")
	flags.BoolVar(&f.Audit, "audit", f.Audit, "write the apiserver's audit log (lab logs audit)")
	return f
}

// applyUpFlags sets the flags that were given in s, and checks it.
func applyUpFlags(given *pflag.FlagSet, s *state.Settings, isNew bool) error {
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	f := newUpFlags(flags, s)
	var failed error
	given.Visit(func(flag *pflag.Flag) {
		if failed == nil && flags.Lookup(flag.Name) != nil { // not a flag of all commands
			failed = flags.Set(flag.Name, flag.Value.String())
		}
	})
	if failed != nil {
		return failed
	}
	return f.apply(isNew)
}

func (f *upFlags) apply(isNew bool) error {
	switch {
	case f.nodes < 0 || f.nodes > state.MaxNodes:
		return fmt.Errorf("--nodes %d: want 0 to %d", f.nodes, state.MaxNodes)
	case f.NodeMemoryMiB < 768:
		return fmt.Errorf("--node-memory %d: want at least 768", f.NodeMemoryMiB)
	case f.NodeCPUs < 1:
		return fmt.Errorf("--node-cpus %d: want at least 1", f.NodeCPUs)
	case f.ControllerManagerQPS <= 0:
		return fmt.Errorf("--controller-manager-qps %v: want more than 0", f.ControllerManagerQPS)
	case f.ControllerManagerBurst < 1:
		return fmt.Errorf("--controller-manager-burst %d: want at least 1", f.ControllerManagerBurst)
	}
	for flag, port := range map[string]int{"apiserver-port": f.APIServerPort, "registry-port": f.RegistryPort, "efs-api-port": f.EFSAPIPort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("--%s %d: want 1 to 65535, or 0 for any free one", flag, port)
		}
	}
	if err := f.SetIPv6Only(f.ipv6Only, isNew); err != nil {
		return err
	}
	return f.SetNodeCount(f.nodes, isNew)
}

func (a *app) downCommand() *cobra.Command {
	return a.command("down", "Stop and remove everything of the lab, including its data",
		func(cmd *cobra.Command, o *orchestrate.Orchestrator, _ []string) error { return o.Down(cmd.Context()) })
}

func (a *app) statusCommand() *cobra.Command {
	var format *output.Format
	cmd := a.command("status", "Show each part, its state, pid, address and log file",
		func(cmd *cobra.Command, o *orchestrate.Orchestrator, _ []string) error {
			parts, err := o.Status(cmd.Context())
			if err != nil {
				return err
			}
			return format.Print(cmd.OutOrStdout(), parts, func(row output.Row) {
				row("PART", "STATE", "PID", "ADDRESS", "LOG")
				for _, p := range parts {
					pid := ""
					if p.PID != 0 {
						pid = strconv.Itoa(p.PID)
					}
					row(p.Part, p.State, pid, p.Address, p.Log)
				}
			})
		})
	format = output.Flag(cmd.Flags())
	return cmd
}
