// Package cli is the lab's command line.
package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/gateway"
	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/proc"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efscli"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/ganesha"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// nameVariable is the environment variable for --name.
const nameVariable = "LAB_NAME"

// app has the flags that all commands share.
type app struct {
	name string // --name
}

// Run runs one command line.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := newRoot(&app{}) //nolint:contextcheck // commands get theirs from ExecuteContext
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "lab",
		Short: "A real Kubernetes cluster with an EFS stand-in on one machine",
		Long: "lab runs a real Kubernetes control plane, nodes as small virtual machines, a\n" +
			"registry and a stand-in for Amazon EFS, all inside one network namespace.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&a.name, "name", defaultName(), "which lab, when several run side by side; also $"+nameVariable)
	root.AddCommand(
		a.upCommand(), a.downCommand(), a.statusCommand(),
		a.kubeconfigCommand(), a.kubectlCommand(), a.execCommand(), a.logsCommand(),
		a.loadCommand(), a.imageCommand(), a.nodeCommand(),
		efscli.New(a.standinSocket), gatewayCommand(), a.standinCommand(), internalExecCommand(),
	)
	root.AddCommand(prepareCommands()...)
	return root
}

func defaultName() string {
	if name := os.Getenv(nameVariable); name != "" {
		return name
	}
	return "default"
}

// command returns a command that starts, changes, stops or shows the lab. It takes one argument for each word
// of use after its name.
func (a *app) command(use, short string, run func(cmd *cobra.Command, o *orchestrate.Orchestrator, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(len(strings.Fields(use)) - 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := state.New(a.name)
			if err != nil {
				return err
			}
			return run(cmd, &orchestrate.Orchestrator{Lab: lab, Steps: step.NewPrinter(cmd.OutOrStdout())}, args)
		},
	}
}

// existing returns the lab of a command that needs one that is up.
func (a *app) existing() (state.Lab, state.Settings, error) {
	lab, err := state.New(a.name)
	if err != nil {
		return state.Lab{}, state.Settings{}, err
	}
	s, err := lab.Load()
	return lab, s, err
}

func (a *app) standinSocket() (string, error) {
	lab, _, err := a.existing()
	if err != nil {
		return "", err
	}
	return lab.StandinSocket(), nil
}

func newLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func gatewayCommand() *cobra.Command {
	return &cobra.Command{
		Use: gateway.Command, Hidden: true, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, targets []string) error {
			return gateway.Run(cmd.Context(), targets, newLogger(cmd.ErrOrStderr()))
		},
	}
}

func (a *app) standinCommand() *cobra.Command {
	return &cobra.Command{
		Use: orchestrate.StandinCommand + " GANESHA-ROOT", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, err := state.New(a.name)
			if err != nil {
				return err
			}
			return standin.Run(cmd.Context(), lab, ganesha.Root(args[0]), newLogger(cmd.ErrOrStderr()))
		},
	}
}

func internalExecCommand() *cobra.Command {
	return &cobra.Command{
		Use: proc.ExecCommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return proc.Exec(args) },
	}
}
