// Package efscli is the command tree `lab efs`, which looks at and changes a
// running stand-in through its admin socket.
package efscli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
)

// app is what all commands share.
type app struct {
	socket func() (string, error)
}

// New makes the command tree. The socket is asked for only when a command runs.
func New(socket func() (string, error)) *cobra.Command {
	a := &app{socket}
	root := &cobra.Command{
		Use:   "efs",
		Short: "Look at and change the lab's stand-in for Amazon EFS",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // makes cobra check Args
	}
	root.AddCommand(
		a.listCommand(), a.statusCommand(),
		a.createFileSystemCommand(), a.updateFileSystemCommand(), a.deleteFileSystemCommand(),
		a.createMountTargetCommand(), a.updateMountTargetCommand(), a.deleteMountTargetCommand(),
		a.createAccessPointCommand(), a.updateAccessPointCommand(), a.deleteAccessPointCommand(),
		a.faultsCommand(),
	)
	return root
}

func (a *app) client() (*admin.Client, error) {
	socket, err := a.socket()
	if err != nil {
		return nil, err
	}
	return admin.NewClient(socket), nil
}

// The values of --output.
const (
	table     = "table"
	jsonText  = "json"
	outputUse = "table or json"
)

func outputFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVarP(value, "output", "o", table, outputUse)
}

func checkOutput(value string) error {
	return checkOneOf("output", value, []string{table, jsonText})
}

// checkOneOf refuses a flag's value that is not allowed.
func checkOneOf[S ~string](flag string, value S, allowed []S) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, name := range allowed {
		names[i] = string(name)
	}
	return fmt.Errorf("--%s %q: want one of %s", flag, value, strings.Join(names, ", "))
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}
