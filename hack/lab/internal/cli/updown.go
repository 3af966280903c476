package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// upFlags are the settings that a person can change; those not given keep
// what the lab was last brought up with.
type upFlags struct {
	nodes int
	state.Settings
}

func (a *app) upCommand() *cobra.Command {
	f := upFlags{Settings: state.DefaultSettings()}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the lab up, or mend it; what runs as wanted is kept",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.orchestrator()
			if err != nil {
				return err
			}
			return o.Up(cmd.Context(), func(s *state.Settings, isNew bool) error { return f.apply(cmd.Flags(), s, isNew) })
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *upFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&f.nodes, "nodes", len(f.Nodes), "how many nodes a new lab gets; for one that exists use `lab node`")
	flags.IntVar(&f.NodeMemoryMiB, "node-memory", f.NodeMemoryMiB, "memory of each node in MiB, from its next start")
	flags.IntVar(&f.NodeCPUs, "node-cpus", f.NodeCPUs, "virtual processors of each node, from its next start")
	flags.IntVar(&f.APIServerPort, "apiserver-port", 0, "port on 127.0.0.1 that leads to the apiserver (0 = any free one)")
	flags.IntVar(&f.RegistryPort, "registry-port", 0, "port on 127.0.0.1 that leads to the registry (0 = any free one)")
	flags.IntVar(&f.EFSAPIPort, "efs-api-port", 0, "port on 127.0.0.1 that leads to the EFS API (0 = any free one)")
	flags.Float64Var(&f.ControllerManagerQPS, "controller-manager-qps", f.ControllerManagerQPS, "the controller-manager's requests a second")
	flags.IntVar(&f.ControllerManagerBurst, "controller-manager-burst", f.ControllerManagerBurst, "the controller-manager's requests at once")
	flags.BoolVar(&f.Audit, "audit", f.Audit, "write the apiserver's audit log (lab logs audit)")
}

// apply copies the flags that were given into the settings, after checking
// them.
func (f *upFlags) apply(given *pflag.FlagSet, s *state.Settings, isNew bool) error {
	fields := map[string]func() error{
		"nodes":                  func() error { return f.setNodes(s, isNew) },
		"node-memory":            func() error { s.NodeMemoryMiB = f.NodeMemoryMiB; return atLeast("node-memory", f.NodeMemoryMiB, 768) },
		"node-cpus":              func() error { s.NodeCPUs = f.NodeCPUs; return atLeast("node-cpus", f.NodeCPUs, 1) },
		"apiserver-port":         func() error { s.APIServerPort = f.APIServerPort; return port("apiserver-port", f.APIServerPort) },
		"registry-port":          func() error { s.RegistryPort = f.RegistryPort; return port("registry-port", f.RegistryPort) },
		"efs-api-port":           func() error { s.EFSAPIPort = f.EFSAPIPort; return port("efs-api-port", f.EFSAPIPort) },
		"controller-manager-qps": func() error { s.ControllerManagerQPS = f.ControllerManagerQPS; return positive(f.ControllerManagerQPS) },
		"controller-manager-burst": func() error {
			s.ControllerManagerBurst = f.ControllerManagerBurst
			return atLeast("controller-manager-burst", f.ControllerManagerBurst, 1)
		},
		"audit": func() error { s.Audit = f.Audit; return nil },
	}
	var failed error
	given.Visit(func(flag *pflag.Flag) {
		if set, ok := fields[flag.Name]; ok && failed == nil {
			failed = set()
		}
	})
	return failed
}

func (f *upFlags) setNodes(s *state.Settings, isNew bool) error {
	if f.nodes < 0 || f.nodes > state.MaxNodes {
		return fmt.Errorf("--nodes %d: want 0 to %d", f.nodes, state.MaxNodes)
	}
	return s.SetNodeCount(f.nodes, isNew)
}

func atLeast(flag string, value, least int) error {
	if value < least {
		return fmt.Errorf("--%s %d: want at least %d", flag, value, least)
	}
	return nil
}

func port(flag string, value int) error {
	if value < 0 || value > 65535 {
		return fmt.Errorf("--%s %d: want 1 to 65535, or 0 for any free one", flag, value)
	}
	return nil
}

func positive(qps float64) error {
	if qps <= 0 {
		return fmt.Errorf("--controller-manager-qps %v: want more than 0", qps)
	}
	return nil
}

func (a *app) prepareCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "prepare",
		Short: "Download and build what labs are made of, and print the folder of tools",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := orchestrate.Orchestrator{Steps: step.NewPrinter(cmd.ErrOrStderr())}
			tools, err := o.Prepare(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), tools)
			return err
		},
	}
}

func (a *app) downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop and remove everything of the lab, its data too",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.orchestrator()
			if err != nil {
				return err
			}
			return o.Down(cmd.Context())
		},
	}
}

func (a *app) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show each part, its state, pid, address and log file",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.orchestrator()
			if err != nil {
				return err
			}
			parts, err := o.Status(cmd.Context())
			if err != nil {
				return err
			}
			switch output {
			case "table":
				return orchestrate.WriteStatus(cmd.OutOrStdout(), parts)
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(parts)
			}
			return fmt.Errorf("--output %q: want table or json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
