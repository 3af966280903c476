package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/orchestrate"
	"gnuthought.com/efs-stunnel/hack/lab/internal/step"
)

// prepareCommands make what labs consist of, without a lab.
func prepareCommands() []*cobra.Command {
	return []*cobra.Command{
		pathCommand("prepare", "Download and build what labs are made of, and print the folder of tools", (*orchestrate.Orchestrator).Prepare),
		pathCommand("components", "Build only the Kubernetes programs and etcd, and print their folder", (*orchestrate.Orchestrator).Components),
		pathCommand("stunnel", "Download only Debian's stunnel, install nothing, and print a program that runs it", (*orchestrate.Orchestrator).Stunnel),
		pathCommand("browser", "Install Debian's Chromium, which labs do without, and print its path", (*orchestrate.Orchestrator).Browser),
		pathCommand("buildah", "Install Debian's buildah and mmdebstrap, which build hack/images/Dockerfile, and print buildah's path", (*orchestrate.Orchestrator).Buildah),
		pathCommand("arm64", "Install Debian's qemu-user-static, which runs programs for arm64, and print the path of its program", (*orchestrate.Orchestrator).Arm64),
		pathCommand("prometheus", "Download only Debian's Prometheus, install nothing, and print a folder of programs that run it", (*orchestrate.Orchestrator).Prometheus),
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
