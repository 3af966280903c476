package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/output"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// prepareCommands make what labs consist of, without a lab.
func prepareCommands() []*cobra.Command {
	return []*cobra.Command{
		planCommand(),
		stepCommand(),
		pathCommand("prepare", "Download and build what labs are made of, and print the folder of tools", (*orchestrate.Orchestrator).Prepare),
		pathCommand("components", "Build only the Kubernetes programs and etcd, and print their folder", (*orchestrate.Orchestrator).Components),
		pathCommand("stunnel", "Download only Debian's stunnel, install nothing, and print a program that runs it", (*orchestrate.Orchestrator).Stunnel),
		pathCommand("nfs-server", "Download only Debian's nfs-ganesha and stunnel, install nothing, and print the folder of a root file system with them", (*orchestrate.Orchestrator).NFSServer),
		pathCommand("applications", "Download only Debian's git, SQLite and PostgreSQL, install nothing, and print a folder that is the root of their image", (*orchestrate.Orchestrator).Applications),
		pathCommand("browser", "Install Debian's Chromium, which labs do without, and print its path", (*orchestrate.Orchestrator).Browser),
		pathCommand("buildah", "Install Debian's buildah and mmdebstrap, which build hack/images/Dockerfile, and print buildah's path", (*orchestrate.Orchestrator).Buildah),
		pathCommand("arm64", "Install Debian's qemu-user-static, which runs programs for arm64, and print the path of its program", (*orchestrate.Orchestrator).Arm64),
		pathCommand("strace", "Install Debian's strace, which counts system calls in tests, and print its path", (*orchestrate.Orchestrator).Strace),
		pathCommand("prometheus", "Download only Debian's Prometheus, install nothing, and print a folder of programs that run it", (*orchestrate.Orchestrator).Prometheus),
	}
}

func planCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "plan", Short: "Show what labs are made of, what of it is cached, and how long the rest takes", Args: cobra.NoArgs}
	format := output.Flag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		parts, err := orchestrate.Plan(cmd.Context())
		if err != nil {
			return err
		}
		return format.Print(cmd.OutOrStdout(), parts, func(row output.Row) {
			row("PART", "USUALLY", "NOW")
			for _, p := range parts {
				now := "to be made"
				if p.Cached {
					now = "cached"
				}
				row(p.Title, fmt.Sprintf("%.0f min", p.Usually.Minutes()), now)
			}
		})
	}
	return cmd
}

// stepCommand runs a program as a step of scripts: what it prints is its progress, and shown whole if it fails.
func stepCommand() *cobra.Command {
	return &cobra.Command{
		Use: "step TITLE -- PROGRAM [ARGUMENT…]", Short: "Run a program, and show what it prints only if it fails", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var printed bytes.Buffer
			err := step.NewPrinter(cmd.OutOrStdout()).Do(cmd.Context(), args[0], func(ctx context.Context, notes *step.Notes) error {
				return host.RunCommand(exec.CommandContext(ctx, args[1], args[2:]...), io.MultiWriter(notes, &printed))
			})
			if err != nil {
				_, _ = printed.WriteTo(cmd.ErrOrStderr())
			}
			return err
		},
	}
}

// pathCommand prints a path to stdout, for scripts, and its progress to stderr.
func pathCommand(name, short string, makePath func(*orchestrate.Orchestrator, context.Context) (string, error)) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := makePath(&orchestrate.Orchestrator{Steps: step.NewPrinter(cmd.ErrOrStderr())}, cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), path)
			return err
		},
	}
}
