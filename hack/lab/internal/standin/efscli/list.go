package efscli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gnuthought.com/efs-stunnel/hack/lab/internal/output"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/admin"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/efsapi"
	"gnuthought.com/efs-stunnel/hack/lab/internal/standin/inventory"
)

func (a *app) listCommand() *cobra.Command {
	return show(a, "list", "List file systems, mount targets, access points and nodes", (*admin.Client).Inventory, inventoryRows)
}

func (a *app) statusCommand() *cobra.Command {
	return show(a, "status", "Show faults, API calls and connections", (*admin.Client).Status, statusRows)
}

// show returns a command that prints what get returns.
func show[T any](a *app, name, short string, get func(*admin.Client, context.Context) (T, error), rows func(T, output.Row)) *cobra.Command {
	var format *output.Format
	cmd := a.command(name, short, func(cmd *cobra.Command, c *admin.Client, _ []string) error {
		value, err := get(c, cmd.Context())
		if err != nil {
			return err
		}
		return format.Print(cmd.OutOrStdout(), value, func(row output.Row) { rows(value, row) })
	})
	format = output.Flag(cmd.Flags())
	return cmd
}

func inventoryRows(s inventory.Snapshot, row output.Row) {
	fileSystems := slices.Sorted(maps.Keys(s.FileSystems))
	row("FILE SYSTEM", "NAME", "STATE", "ZONE", "ROLE", "IAM", "CREATED")
	for _, id := range fileSystems {
		fs := s.FileSystems[id]
		row(id, fs.Name(), fs.State, fs.Zone, textIf(fs.Replicating, "replication destination"), textIf(fs.RequireIAM, "required"),
			fs.CreatedAt.Format(time.DateTime))
	}
	row()
	row("MOUNT TARGET", "FILE SYSTEM", "STATE", "ZONE", "ADDRESS", "SUBNET")
	for _, id := range fileSystems {
		for _, t := range s.MountTargetsOf(id) {
			row(t.ID, t.FileSystemID, t.State, t.Zone, strings.Join(t.Addresses(), ","), t.SubnetID)
		}
	}
	row()
	row("ACCESS POINT", "FILE SYSTEM", "STATE", "NAME", "PATH", "USER")
	for _, id := range fileSystems {
		for _, p := range s.AccessPointsOf(id) {
			user := ""
			if p.PosixUser != nil {
				user = fmt.Sprintf("%d:%d", p.PosixUser.UID, p.PosixUser.GID)
			}
			row(p.ID, p.FileSystemID, p.State, p.Tags["Name"], p.Path, user)
		}
	}
	row()
	row("NODE", "ADDRESS", "POD NETWORK", "ZONE", "MAC")
	for _, name := range slices.Sorted(maps.Keys(s.Nodes)) {
		n := s.Nodes[name]
		row(n.Name, n.Address, n.PodCIDR, n.Zone, n.MAC)
	}
}

func textIf(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

func statusRows(s admin.Status, row output.Row) {
	row("FAULT", "OPERATION", "CALLS")
	for _, f := range s.Faults {
		row(f.Kind, textIf(f.Operation == "", "all")+f.Operation, affectedCalls(f))
	}
	row()
	row("OPERATION", "RESULT", "CALLS")
	for _, operation := range slices.Sorted(maps.Keys(s.Calls)) {
		for _, result := range slices.Sorted(maps.Keys(s.Calls[operation])) {
			row(operation, result, s.Calls[operation][result])
		}
	}
	row()
	row("MOUNT TARGET", "FILE SYSTEM", "ADDRESS", "MODE", "CERTIFICATE", "DELAY", "OPEN", "TOTAL", "REFUSED", "LAST REFUSAL")
	for _, t := range s.MountTargets {
		row(t.ID, t.FileSystemID, t.Address, t.Mode, t.Certificate, t.Delay, t.Open, t.Total, t.Refused, t.LastRefusal)
	}
	row()
	row("MOUNT TARGET", "REFUSED FOR", "CONNECTIONS")
	for _, t := range s.MountTargets {
		for _, cause := range slices.Sorted(maps.Keys(t.Refusals)) {
			row(t.ID, cause, t.Refusals[cause])
		}
	}
	row()
	row("CLIENT", "MOUNT TARGET", "ACCESS POINT", "IAM", "SINCE")
	for _, t := range s.MountTargets {
		for _, c := range t.Connections {
			row(c.Client, t.ID, c.AccessPoint, c.IAM, c.Since.Format(time.DateTime))
		}
	}
}

// affectedCalls describes the calls that a fault still affects.
func affectedCalls(f efsapi.Fault) string {
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
