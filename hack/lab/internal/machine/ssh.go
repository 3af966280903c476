package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"gnuthought.com/efs-stunnel/hack/lab/internal/host"
	"gnuthought.com/efs-stunnel/hack/lab/internal/state"
)

// All nodes of a lab have the same host key and accept the same user key.
func hostKey(lab state.Lab) string { return lab.Path("pki", "ssh-host") }
func userKey(lab state.Lab) string { return lab.Path("pki", "ssh-user") }

func knownHosts(lab state.Lab) string { return lab.Path("pki", "ssh-known-hosts") }

func makeKeys(ctx context.Context, lab state.Lab) error {
	for _, key := range []string{hostKey(lab), userKey(lab)} {
		if err := makeKey(ctx, key); err != nil {
			return fmt.Errorf("making SSH keys: %w", err)
		}
	}
	public, err := os.ReadFile(hostKey(lab) + ".pub")
	if err != nil {
		return fmt.Errorf("making SSH keys: %w", err)
	}
	if err := os.WriteFile(knownHosts(lab), append([]byte("* "), public...), 0o644); err != nil {
		return fmt.Errorf("making SSH keys: %w", err)
	}
	return nil
}

func makeKey(ctx context.Context, file string) error {
	if _, err := os.Stat(file); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return host.Run(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", file)
}

// SSHCommand returns the command line that runs a command on a node, or a login shell without one. It works
// only inside the lab's network namespace.
func SSHCommand(lab state.Lab, n state.Node, terminal bool, command []string) []string {
	args := []string{
		"ssh", "-F", "none", "-i", userKey(lab), "-l", "root",
		"-o", "UserKnownHostsFile=" + knownHosts(lab), "-o", "StrictHostKeyChecking=yes",
		"-o", "ConnectTimeout=60", "-o", "LogLevel=ERROR",
	}
	if terminal {
		args = append(args, "-t")
	}
	args = append(args, n.Address())
	if len(command) == 0 {
		return args
	}
	return append(args, "--", Quote(command))
}

// Quote makes one shell line of a command, because SSH joins its arguments with spaces and the node's
// shell splits them again.
func Quote(command []string) string {
	quoted := make([]string, len(command))
	for i, argument := range command {
		quoted[i] = "'" + strings.ReplaceAll(argument, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
