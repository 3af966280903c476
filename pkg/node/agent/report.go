package agent

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/kube/events"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// node is the object of events. Its uid is its name, as in kubelet's events: kubectl describe finds
// events by that uid, and the Node need not be read first.
func (a *Agent) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.options.Node, UID: types.UID(a.options.Node)}}
}

// newEvents returns the writer of events and log lines about conditions. An annotation names the tunnel:
// events are limited for each tunnel, so that one whose health changes often does not use up the node's.
func (a *Agent) newEvents() events.Conditions {
	return events.Conditions{
		Events: a.options.Events,
		Log: func(s status.Subject) *slog.Logger {
			if s.Kind == status.Tunnel {
				return a.logOf(s.Name)
			}
			return a.options.Log
		},
		Objects: func(c status.Condition) ([]runtime.Object, map[string]string) {
			if c.Subject.Kind == status.Tunnel {
				return []runtime.Object{a.node()}, map[string]string{wellknown.AnnotationTunnel: c.Subject.Name}
			}
			return []runtime.Object{a.node()}, nil
		},
	}
}

// report updates the conditions, at each sync, and reports what began, changed and ended.
func (a *Agent) report(ctx context.Context, now time.Time) {
	changes := a.held.Update(now, a.conditions(now))
	a.newEvents().Report(ctx, changes)
	a.show(now, !changes.IsZero())
}

func (a *Agent) conditions(now time.Time) []status.Condition {
	all := slices.Concat(a.tableConditions(), a.ephemeralConditions(now))
	for _, t := range a.plan.Unusable {
		all = append(all, ofTunnel(t.Name, wellknown.EventTargetUnusable, "target %s cannot be served (%s): %s", t.Name, t.Reason, t.Message))
	}
	for _, t := range a.plan.Tunnels {
		all = append(all, a.processConditions(t)...)
		all = append(all, a.healthConditions(t)...)
		all = append(all, certificateConditions(t, now)...)
	}
	return all
}

func (a *Agent) ofNode(reason, message string) status.Condition {
	return status.Condition{Subject: status.Subject{Kind: status.Node, Name: a.options.Node}, Reason: reason, Message: message}
}

// ofTunnel quotes a name that is none of a tunnel's: users edit the table.
func ofTunnel(name, reason, format string, args ...any) status.Condition {
	if tunnelspec.CheckName(name) != nil {
		name = fmt.Sprintf("%.60q", name)
	}
	return status.Condition{Subject: status.Subject{Kind: status.Tunnel, Name: name}, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func (a *Agent) tableConditions() (all []status.Condition) {
	switch p := a.problem; {
	case p.deleted && a.hasTable:
		all = append(all, a.ofNode(wellknown.EventTableMissing, "ConfigMap "+wellknown.TargetsConfigMap+" is gone; what it last said is served on"))
	case p.err != nil:
		all = append(all, a.ofNode(wellknown.EventTableUnreadable, "ConfigMap "+wellknown.TargetsConfigMap+" cannot be read; what it last said is served on: "+p.err.Error()))
	}
	for id, err := range a.problem.rejected {
		all = append(all, ofTunnel(id, wellknown.EventTargetUnusable,
			"target %.60q cannot be read; what the table last said of it is served on: %v", id, err))
	}
	return all
}

// processConditions is about the supervisor's problem with a tunnel: a port that another process has, or a
// configuration that stunnel or the supervisor cannot use, for example because a file is not mounted into
// the supervisor's container.
func (a *Agent) processConditions(t routing.Tunnel) []status.Condition {
	p := a.status.Tunnels[t.Name].Process
	switch {
	case p.Is(tunnelspec.ReasonPortTaken):
		return []status.Condition{ofTunnel(t.Name, wellknown.EventPortTaken, "port %d of target %s is taken by another process; "+
			"volumes on it cannot be mounted on this node until that ends", t.Port, t.Name)}
	case p.Is(tunnelspec.ReasonBadConfig, tunnelspec.ReasonStartFailed):
		return []status.Condition{ofTunnel(t.Name, wellknown.EventConfigurationRefused,
			"tunnel to %s on port %d cannot run as it is configured (%s): %s", t.Name, t.Port, p.Reason, p.Message)}
	}
	return nil
}

// certificateConditions is about a client certificate that cannot be renewed or replaced. A target that
// cannot be served without a certificate is one of the plan's Unusable.
func certificateConditions(t routing.Tunnel, now time.Time) []status.Condition {
	c := t.Certificate
	if c.Problem == "" {
		return nil
	}
	until := c.Until.UTC().Format(time.RFC3339)
	state := "renewed; it serves until " + until
	switch {
	case c.Identity != t.Identity:
		state = "made; the tunnel serves as it did before"
	case !now.Before(c.Until):
		state = "renewed; it ended at " + until + ", and only open connections go on"
	}
	return []status.Condition{ofTunnel(t.Name, wellknown.EventClientCertificateFailed,
		"client certificate of the tunnel to %s on port %d cannot be %s: %s", t.Name, t.Port, state, c.Problem)}
}

// healthConditions is about the latest probe. Denied access is a condition of its own, also after another
// failure: then the network is not the cause. Other failures keep the first message.
func (a *Agent) healthConditions(t routing.Tunnel) []status.Condition {
	state, ok := a.tunnels[t.Name]
	if !ok || state.judged == nil || state.judged.Err == nil {
		return nil
	}
	failed := probe.Reason(state.judged.Err)
	c := ofTunnel(t.Name, wellknown.EventTunnelUnhealthy, "%s", a.unhealthyMessage(state))
	c.Cause = status.Reference{Subject: status.Subject{Kind: status.MountTarget, Name: state.Active.Address.String()}, Reason: failed}
	c.Detail = "NoAnswer"
	if failed == tunnelspec.ProbeDenied {
		c.Detail = failed
	}
	all := []status.Condition{c}
	if isHijacked(state) {
		all = append(all, ofTunnel(t.Name, wellknown.EventPortHijacked, "new connections to port %[1]d of this node, for volumes on %[2]s, reach another pod or Service "+
			"instead of the tunnel, which receives this node's NFS traffic in the clear: find the pod on this node with hostPort %[1]d, "+
			"or the Service with nodePort %[1]d, and delete it", t.Port, t.Name))
	}
	return all
}

func (a *Agent) logOf(name string) *slog.Logger { return logging.ForTunnel(a.options.Log, name) }

// unhealthyMessage prefers stunnel's message, which says what is wrong with a certificate.
func (a *Agent) unhealthyMessage(state *tunnelState) string {
	cause := state.judged.Err.Error()
	if problem := a.status.Tunnels[state.Name].Connection; problem != nil && !isHijacked(state) {
		cause = fmt.Sprintf("%s: %s", problem.Reason, problem.Message)
	}
	open := ""
	if state.judged.Established {
		open = ", though open connections go on"
	}
	refused := a.status.Tunnels[state.Name].Connection.Is(tunnelspec.ReasonCertificateUntrusted, tunnelspec.ReasonCertificateExpired)
	if state.Authorities != "" && (refused || probe.Reason(state.judged.Err) == tunnelspec.ProbeCertificate) {
		cause += "; ca_certificates of the target: " + describe(state.Authorities)
	}
	return fmt.Sprintf("tunnel to %s on port %d is unhealthy%s (%s): %s",
		state.Name, state.Port, open, probe.Reason(state.judged.Err), cause)
}

// describe returns the subjects and ends of certificates in PEM.
func describe(authorities string) string {
	var all []string
	certificates, _ := ports.Authorities(authorities) // what cannot be parsed is not in a table
	for _, c := range certificates {
		all = append(all, fmt.Sprintf("%.200q until %s", c.Subject, c.NotAfter.UTC().Format(time.RFC3339)))
	}
	return strings.Join(all, ", ")
}

// reportAction records that a tunnel moves to another mount target or restarts.
func (a *Agent) reportAction(state *tunnelState, next routing.State, action routing.Action) {
	a.metrics.actions.WithLabelValues(string(action)).Inc()
	to := state.MountTargets[0].Address
	if next.Preferred.IsValid() {
		to = next.Preferred
	}
	a.logOf(state.Name).Warn("tunnel moves to another mount target or restarts", "port", state.Port, "mountTarget", to, "action", action)
	eventType, reason, text := corev1.EventTypeWarning, wellknown.EventTunnelMoved, "fails over to"
	switch action {
	case routing.Reorder:
		text = "connects first to"
	case routing.Restart:
		reason, text = wellknown.EventTunnelRestarted, "restarts with"
	case routing.Return:
		eventType, text = corev1.EventTypeNormal, "returns to"
	}
	a.options.Events.Eventf(a.node(), eventType, reason, "tunnel to %s on port %d %s mount target %s", state.Name, state.Port, text, to)
}

// ephemeralInterval is between two readings of the node's settings, which administrators change.
const ephemeralInterval = 10 * time.Minute

// ephemeralPorts are the node's settings, as the agent last read them.
type ephemeralPorts struct {
	ports  ports.Ephemeral // of the latest reading without error
	readAt time.Time       // zero before the first
	err    loop.LastError  // of the latest reading
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
	if a.ephemeral.err.IsNew(err) {
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
		node.Range, status.FirstFew(named), toReserve(tunnels), already)
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
