package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// upgradeTime is far longer than the old agent of an upgrade stays.
const upgradeTime = 15 * time.Minute

// node is the object of events. Its uid is its name, as in kubelet's events: kubectl describe finds
// events by that uid, and the Node need not be read first.
func (a *Agent) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.options.Node, UID: types.UID(a.options.Node)}}
}

// report reports what is wrong now, at each sync. The reporter limits how often an event is repeated.
func (a *Agent) report(now time.Time) {
	defer a.endProblems(now)
	a.reportTable(now)
	a.reportEphemeralPorts(now)
	for _, t := range a.plan.Unusable {
		a.warn(now, wellknown.EventTargetUnusable, t.Name, fmt.Sprintf("target %s cannot be served (%s): %s", t.Name, t.Reason, t.Message))
	}
	for _, t := range a.plan.Tunnels {
		if p := a.status.Tunnels[t.Name].Process; p.Is(tunnelspec.ReasonPortTaken) && a.isForeign(p.At, now) {
			a.warn(now, wellknown.EventPortTaken, t.Name, fmt.Sprintf("port %d of target %s is taken by another process; "+
				"volumes on it cannot be mounted on this node until that ends", t.Port, t.Name))
		}
		a.reportHijacked(t, now)
		a.reportRefusedConfiguration(t, now)
		a.reportCertificate(t, now)
	}
}

func (a *Agent) reportHijacked(t routing.Tunnel, now time.Time) {
	if state, ok := a.tunnels[t.Name]; ok && isHijacked(state) {
		a.warn(now, wellknown.EventPortHijacked, t.Name, fmt.Sprintf("new connections to port %[1]d of this node, for volumes on %[2]s, reach another pod or Service "+
			"instead of the tunnel, which receives this node's NFS traffic in the clear: find the pod on this node with hostPort %[1]d, "+
			"or the Service with nodePort %[1]d, and delete it", t.Port, t.Name))
	}
}

// reportCertificate reports that the tunnel's client certificate cannot be renewed or replaced. A
// target that cannot be served without a certificate is one of the plan's Unusable.
func (a *Agent) reportCertificate(t routing.Tunnel, now time.Time) {
	c := t.Certificate
	if c.Problem == "" {
		return
	}
	until := c.Until.UTC().Format(time.RFC3339)
	state := "renewed; it serves until " + until
	switch {
	case c.Identity != t.Identity:
		state = "made; the tunnel serves as it did before"
	case !now.Before(c.Until):
		state = "renewed; it ended at " + until + ", and only open connections go on"
	}
	a.warn(now, wellknown.EventClientCertificateFailed, t.Name, fmt.Sprintf("client certificate of the tunnel to %s on port %d cannot be %s: %s",
		t.Name, t.Port, state, c.Problem))
}

// reportRefusedConfiguration reports a configuration that stunnel or the supervisor cannot use, for
// example because a file is not mounted into the supervisor's container.
func (a *Agent) reportRefusedConfiguration(t routing.Tunnel, now time.Time) {
	p := a.status.Tunnels[t.Name].Process
	if p.Is(tunnelspec.ReasonBadConfig, tunnelspec.ReasonStartFailed) {
		a.warn(now, wellknown.EventConfigurationRefused, t.Name, fmt.Sprintf("tunnel to %s on port %d cannot run as it is configured (%s): %s", t.Name, t.Port, p.Reason, p.Message))
	}
}

// isForeign reports whether another process than the old pod of an upgrade has the port: an old pod of
// a version that does not share ports keeps them for a while.
func (a *Agent) isForeign(since, now time.Time) bool {
	return !a.otherAgent.Load() && now.Sub(a.started) >= httpGrace || now.Sub(since) >= upgradeTime
}

func (a *Agent) reportTable(now time.Time) {
	switch p := a.problem; {
	case p.deleted && a.hasTable:
		a.warn(now, wellknown.EventTableMissing, "", "ConfigMap "+wellknown.TargetsConfigMap+" is gone; what it last said is served on")
	case p.err != nil:
		a.warn(now, wellknown.EventTableUnreadable, "", "ConfigMap "+wellknown.TargetsConfigMap+" cannot be read; what it last said is served on: "+p.err.Error())
	}
	for _, r := range a.problem.rejected {
		a.warn(now, wellknown.EventTargetUnusable, r.FileSystem, fmt.Sprintf("target %.60q cannot be read; what the table last said of it is served on: %v", r.FileSystem, r.Err))
	}
}

// problem is what is wrong with a tunnel, or with the node when tunnel is empty.
type problem struct{ reason, tunnel string }

// annotations separate the events of tunnels, and tell doctor what they are about.
func (p problem) annotations() map[string]string {
	if p.tunnel == "" {
		return nil
	}
	return map[string]string{wellknown.AnnotationTunnel: p.tunnel}
}

func (p problem) endMessage() string {
	if p.tunnel == "" {
		return p.reason + " has ended"
	}
	return fmt.Sprintf("%s of tunnel %.60q has ended", p.reason, p.tunnel)
}

// reported is what was said of a problem, and when it was last found.
type reported struct {
	message string
	at      time.Time
}

// warn records an event. It logs the message once for as long as it stays the same.
func (a *Agent) warn(now time.Time, reason, tunnel, message string) {
	p := problem{reason, tunnel}
	a.events.WarnAnnotated(a.node(), p.annotations(), reason, tunnel, message)
	if a.problems[p].message != message {
		a.logOf(tunnel).Warn("node cannot serve as it should", "message", message)
	}
	a.problems[p] = reported{message, now}
}

// endProblems reports problems that were not found for a while, as reportHealth does for tunnels.
func (a *Agent) endProblems(now time.Time) {
	for p, last := range a.problems {
		if now.Sub(last.at) < healthyAfter {
			continue
		}
		delete(a.problems, p)
		a.events.Forget(a.node(), p.reason, p.tunnel)
		mark := map[string]string{wellknown.AnnotationProblem: p.reason}
		maps.Copy(mark, p.annotations())
		a.logOf(p.tunnel).Info("problem has ended", "reason", p.reason)
		a.options.Events.AnnotatedEventf(a.node(), mark, corev1.EventTypeNormal, wellknown.EventProblemEnded, "%s", p.endMessage())
	}
}

func (a *Agent) logOf(name string) *slog.Logger { return logging.ForTunnel(a.options.Log, name) }

// reportHealth records when a tunnel becomes unhealthy, and when it has been healthy again for a while.
// That the server denies access is recorded after another problem, too: then the network is not the cause.
func (a *Agent) reportHealth(state *tunnelState) {
	r := state.result
	denied := probe.Reason(r.Err) == tunnelspec.ProbeDenied
	switch {
	case r.Err != nil && (!state.isUnhealthy || denied && !state.denied):
		state.isUnhealthy, state.denied, state.healthySince = true, denied, time.Time{}
		message := a.unhealthyMessage(state)
		a.logOf(state.Name).Warn("tunnel is unhealthy", "port", state.Port,
			"mountTarget", state.Active.Address, "reason", probe.Reason(r.Err), "err", r.Err)
		a.record(state, corev1.EventTypeWarning, wellknown.EventTunnelUnhealthy, message)
	case r.Err != nil:
		state.healthySince = time.Time{}
	case !state.isUnhealthy:
	case state.healthySince.IsZero():
		state.healthySince = r.At
	case r.At.Sub(state.healthySince) >= healthyAfter:
		state.isUnhealthy, state.denied, state.healthySince = false, false, time.Time{}
		a.logOf(state.Name).Info("tunnel is healthy again", "port", state.Port, "mountTarget", state.Active.Address)
		a.record(state, corev1.EventTypeNormal, wellknown.EventTunnelHealthy,
			fmt.Sprintf("tunnel to %s on port %d is healthy again", state.Name, state.Port))
	}
}

// record annotates the event with the tunnel: events are limited for each tunnel, so that one whose
// health changes often does not use up the node's.
func (a *Agent) record(state *tunnelState, kind, reason, message string) {
	mark := map[string]string{wellknown.AnnotationTunnel: state.Name}
	if failed := probe.Reason(state.result.Err); failed != "" {
		mark[wellknown.AnnotationProbe] = failed
	}
	a.options.Events.AnnotatedEventf(a.node(), mark, kind, reason, "%s", message)
}

// unhealthyMessage prefers stunnel's message, which says what is wrong with a certificate.
func (a *Agent) unhealthyMessage(state *tunnelState) string {
	cause := state.result.Err.Error()
	if problem := a.status.Tunnels[state.Name].Connection; problem != nil && !isHijacked(state) {
		cause = fmt.Sprintf("%s: %s", problem.Reason, problem.Message)
	}
	open := ""
	if state.result.Established {
		open = ", though open connections go on"
	}
	return fmt.Sprintf("tunnel to %s on port %d is unhealthy%s (%s): %s",
		state.Name, state.Port, open, probe.Reason(state.result.Err), cause)
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
