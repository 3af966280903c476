package preflight

import (
	"cmp"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// AccessPointActions is the cause of the note about what a manager needs that makes access points.
const AccessPointActions inspect.Cause = "AccessPointActions"

// accessPoints returns what classes with access points need, none without such a class. The role of the manager cannot
// be tried before it runs.
func (f *Facts) accessPoints() []inspect.Result {
	if len(f.PointClasses) == 0 {
		return nil
	}
	room := f.roomForPorts()
	return []inspect.Result{
		note(AccessPointActions, "class "+strings.Join(f.PointClasses, ", "), "the manager makes an access point for each claim: its AWS role needs elasticfilesystem:CreateAccessPoint, "+
			"elasticfilesystem:DeleteAccessPoint and elasticfilesystem:TagResource", wellknown.DocsURL+"tasks/aws-permissions.md#access-points"),
		inspect.Fine("local ports", "each access point takes one: from %d on, %d are free for --stunnel-port-count, %d are planned", f.Ports.First, room, f.Ports.Last-f.Ports.First+1),
	}
}

// roomForPorts returns how many ports from the first of the tunnels' on neither the node ports contain, nor a node's
// ephemeral ports, nor an object that can be seen.
func (f *Facts) roomForPorts() int {
	used, nodePorts := map[int]bool{}, cmp.Or(f.NodePorts, defaultNodePorts())
	f.eachPort(func(_, _ string, port int) { used[port] = true })
	var ephemeral []ports.Ephemeral
	for _, report := range f.Reports {
		if parsed, err := ports.ParseEphemeral(report.PortRange, report.Reserved); err == nil {
			ephemeral = append(ephemeral, parsed)
		}
	}
	if len(ephemeral) == 0 { // the kernel's default
		ephemeral = []ports.Ephemeral{{Range: ports.Span{First: 32768, Last: 60999}}}
	}
	free := func(port int) bool {
		return !used[port] && !nodePorts.Contains(port) && !slices.ContainsFunc(ephemeral, func(e ports.Ephemeral) bool { return e.Contains(port) })
	}
	port := f.Ports.First
	for port <= wellknown.MaxPort && free(port) {
		port++
	}
	return port - f.Ports.First
}
