package efscli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/world"
)

func (a *app) listCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List file systems, mount targets, access points and nodes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			w, err := c.World(cmd.Context())
			if err != nil {
				return err
			}
			if output == jsonText {
				return writeJSON(cmd.OutOrStdout(), w)
			}
			return writeWorld(cmd.OutOrStdout(), w)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func (a *app) statusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show faults, API calls and connections",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			s, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if output == jsonText {
				return writeJSON(cmd.OutOrStdout(), s)
			}
			return writeStatus(cmd.OutOrStdout(), s)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// rows writes a table of tab-separated lines.
func rows(w io.Writer, fill func(line func(cells ...any))) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fill(func(cells ...any) {
		texts := make([]string, len(cells))
		for i, cell := range cells {
			if texts[i] = fmt.Sprint(cell); texts[i] == "" {
				texts[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(texts, "\t"))
	})
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

func writeWorld(out io.Writer, w world.World) error {
	return rows(out, func(line func(...any)) {
		line("FILE SYSTEM", "NAME", "STATE", "ZONE", "ROLE", "IAM", "CREATED")
		for _, id := range slices.Sorted(maps.Keys(w.FileSystems)) {
			fs := w.FileSystems[id]
			line(id, fs.Name(), fs.State, fs.Zone, role(fs), demand(fs), fs.CreatedAt.Format("2006-01-02 15:04:05"))
		}
		line()
		line("MOUNT TARGET", "FILE SYSTEM", "STATE", "ZONE", "ADDRESS", "SUBNET")
		for _, id := range slices.Sorted(maps.Keys(w.FileSystems)) {
			for _, t := range w.MountTargetsOf(id) {
				line(t.ID, t.FileSystemID, t.State, t.Zone, t.Address, t.SubnetID)
			}
		}
		line()
		line("ACCESS POINT", "FILE SYSTEM", "STATE", "NAME", "PATH", "USER")
		for _, id := range slices.Sorted(maps.Keys(w.FileSystems)) {
			for _, p := range w.AccessPointsOf(id) {
				line(p.ID, p.FileSystemID, p.State, p.Name, p.Path, user(p))
			}
		}
		line()
		line("NODE", "ADDRESS", "POD NETWORK", "ZONE", "MAC")
		for _, name := range slices.Sorted(maps.Keys(w.Nodes)) {
			n := w.Nodes[name]
			line(n.Name, n.Address, n.PodCIDR, n.Zone, n.MAC)
		}
	})
}

func role(fs world.FileSystem) string {
	if fs.Replicating {
		return "replication destination"
	}
	return ""
}

func demand(fs world.FileSystem) string {
	if fs.RequireIAM {
		return "required"
	}
	return ""
}

func user(p world.AccessPoint) string {
	if p.PosixUser == nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", p.PosixUser.UID, p.PosixUser.GID)
}

func writeStatus(out io.Writer, s admin.Status) error {
	return rows(out, func(line func(...any)) {
		line("FAULT", "OPERATION", "CALLS")
		for _, f := range s.Faults {
			operation := f.Operation
			if operation == "" {
				operation = "all"
			}
			line(f.Kind, operation, extent(f))
		}
		line()
		line("OPERATION", "RESULT", "CALLS")
		for _, operation := range slices.Sorted(maps.Keys(s.Calls)) {
			for _, result := range slices.Sorted(maps.Keys(s.Calls[operation])) {
				line(operation, result, s.Calls[operation][result])
			}
		}
		line()
		line("MOUNT TARGET", "FILE SYSTEM", "ADDRESS", "MODE", "CERTIFICATE", "OPEN", "TOTAL", "REFUSED", "LAST REFUSAL")
		for _, t := range s.MountTargets {
			line(t.ID, t.FileSystemID, t.Address, t.Mode, t.Certificate, t.Open, t.Total, t.Refused, t.LastRefusal)
		}
		line()
		line("MOUNT TARGET", "REFUSED FOR", "CONNECTIONS")
		for _, t := range s.MountTargets {
			for _, cause := range slices.Sorted(maps.Keys(t.Refusals)) {
				line(t.ID, cause, t.Refusals[cause])
			}
		}
		line()
		line("CLIENT", "MOUNT TARGET", "ACCESS POINT", "IAM", "SINCE")
		for _, t := range s.MountTargets {
			for _, c := range t.Connections {
				line(c.Client, t.ID, c.AccessPoint, c.IAM, c.Since.Format("2006-01-02 15:04:05"))
			}
		}
	})
}

// extent says which calls a fault still concerns.
func extent(f efsapi.Fault) string {
	switch {
	case f.Kind == efsapi.PageSize:
		return fmt.Sprintf("all, %d per page", f.Size)
	case f.Next > 0:
		return fmt.Sprintf("the next %d", f.Next)
	case f.Rate > 0:
		return fmt.Sprintf("%g of all", f.Rate)
	}
	return "all"
}
