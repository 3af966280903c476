package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gnuthought.com/efs-stunnel/hack/lab/internal/machine"
	"gnuthought.com/efs-stunnel/hack/lab/internal/network"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

func (a *app) kubeconfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			lab, _, err := a.existing()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), lab.Kubeconfig())
			return err
		},
	}
}

func (a *app) kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl -- ARGS",
		Short: "Run the lab's own kubectl as its administrator",
		RunE: func(_ *cobra.Command, args []string) error {
			lab, _, err := a.existing()
			if err != nil {
				return err
			}
			command := append([]string{"kubectl", "--kubeconfig=" + lab.Kubeconfig()}, args...)
			return become(lab.Path("kubectl"), command)
		},
	}
}

func (a *app) execCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- COMMAND",
		Short: "Run a command on a node as root; without one, a shell",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			lab, s, err := a.existing()
			if err != nil {
				return err
			}
			n, err := s.Node(args[0])
			if err != nil {
				return err
			}
			ssh, err := exec.LookPath("ssh")
			if err != nil {
				return fmt.Errorf("finding ssh: %w: install openssh-client", err)
			}
			// main has locked the main thread, and the exec below keeps the thread's namespace.
			if err := network.Enter(lab); err != nil {
				return err
			}
			return become(ssh, machine.SSHCommand(lab, n, isTerminal(os.Stdin), args[1:]))
		},
	}
}

// become executes another program in this process, so that signals, the terminal and the exit code are
// the program's.
func become(program string, args []string) error {
	if err := syscall.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	return nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (a *app) logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [PART]",
		Short: "Print a part's log; without a part, list the logs",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lab, _, err := a.existing()
			if err != nil {
				return err
			}
			names, err := logNames(lab)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), strings.Join(names, "\n"))
				return err
			}
			if !slices.Contains(names, args[0]) {
				return fmt.Errorf("no log of %q: want one of %s", args[0], strings.Join(names, ", "))
			}
			return printLog(cmd.OutOrStdout(), lab.LogFile(args[0]), follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print new lines as they are added")
	return cmd
}

func logNames(lab state.Lab) ([]string, error) {
	names, err := filepath.Glob(lab.LogFile("*")) // sorted
	if err != nil {
		return nil, fmt.Errorf("listing logs: %w", err)
	}
	for i, f := range names {
		names[i] = strings.TrimSuffix(filepath.Base(f), ".log")
	}
	return names, nil
}

func printLog(w io.Writer, file string, follow bool) error {
	if follow {
		return become("/usr/bin/tail", []string{"tail", "-n", "+1", "-f", file})
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("reading log: %w", err)
	}
	return nil
}
