package agent

import (
	"cmp"
	"fmt"
	"io/fs"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// ephemeralInterval is between two readings of the node's settings, which administrators change.
const ephemeralInterval = 10 * time.Minute

// ephemeralPorts are the node's settings, as the agent last read them.
type ephemeralPorts struct {
	ports  ports.Ephemeral // of the latest reading without error
	readAt time.Time       // zero before the first
	err    lastError       // of the latest reading
}

// ephemeralConditions is about the tunnels whose ports the kernel may assign to any process.
func (a *Agent) ephemeralConditions(now time.Time) []status.Condition {
	if a.ephemeral.readAt.IsZero() || now.Sub(a.ephemeral.readAt) >= ephemeralInterval {
		a.readEphemeralPorts(now)
	}
	var tunnels []routing.Tunnel
	for _, t := range a.plan.Tunnels {
		if a.ephemeral.ports.Contains(t.Port) {
			tunnels = append(tunnels, t)
		}
	}
	a.metrics.ephemeral.Set(float64(len(tunnels)))
	if len(tunnels) == 0 {
		return nil
	}
	return []status.Condition{a.ofNode(wellknown.EventPortInEphemeralRange, ephemeralMessage(a.ephemeral.ports, tunnels))}
}

// readEphemeralPorts keeps what was read before when the settings cannot be read.
func (a *Agent) readEphemeralPorts(now time.Time) {
	a.ephemeral.readAt = now
	read, err := parseEphemeralPorts(a.options.ProcSys)
	if err == nil {
		a.ephemeral.ports = read
	}
	if a.ephemeral.err.isNew(err) {
		a.options.Log.Warn("node's port settings cannot be read, so ports of tunnels are not compared with them", "err", err)
	}
}

// parseEphemeralPorts: the agent is on the node's network, whose settings these are.
func parseEphemeralPorts(procSys fs.FS) (ports.Ephemeral, error) {
	if procSys == nil {
		return ports.Ephemeral{}, nil
	}
	portRange, rangeErr := fs.ReadFile(procSys, "net/ipv4/ip_local_port_range")
	reserved, err := fs.ReadFile(procSys, "net/ipv4/ip_local_reserved_ports")
	if err := cmp.Or(rangeErr, err); err != nil {
		return ports.Ephemeral{}, err
	}
	return ports.ParseEphemeral(string(portRange), string(reserved))
}

// ephemeralMessage returns one message for all tunnels: the usual cause affects all of the node.
func ephemeralMessage(node ports.Ephemeral, tunnels []routing.Tunnel) string {
	var named []string
	for _, t := range tunnels {
		named = append(named, fmt.Sprintf("%d (%s)", t.Port, t.Name))
	}
	already := ""
	if len(node.Reserved) > 0 {
		already = ", beside what that setting has already"
	}
	return fmt.Sprintf("the kernel gives ports %s to processes that ask for any, also the tunnels' ports %s: a tunnel cannot "+
		"listen while another process has its port. Reserve them on the node: sysctl net.ipv4.ip_local_reserved_ports=%s%s",
		node.Range, firstFew(named), toReserve(tunnels), already)
}

// toReserve prefers the manager's default range, from which later tunnels get their ports.
func toReserve(tunnels []routing.Tunnel) ports.Span {
	span := ports.Span{First: wellknown.DefaultBasePort, Last: wellknown.DefaultBasePort + wellknown.DefaultPortCount - 1}
	all := ports.Span{First: tunnels[0].Port, Last: tunnels[0].Port}
	for _, t := range tunnels {
		all.First, all.Last = min(all.First, t.Port), max(all.Last, t.Port)
	}
	if span.Contains(all.First) && span.Contains(all.Last) {
		return span
	}
	return all
}
