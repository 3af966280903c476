package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/httpserver"
)

// observed is what the loop last observed and planned. All but plan.States is replaced, and never changed.
type observed struct {
	table        ports.Table
	hasTable     bool
	unknown      []string // targets in the table that this agent could never decode
	problem      tableProblem
	location     routing.Location
	status       tunnelspec.Status
	statusSeenAt time.Time // when that was seen to change, by the monotonic clock; the agent's start before
	plan         routing.Plan
	planned      bool // a plan was made, which may be empty
}

// snapshot is the state after a sync, for probes and metrics. It is never changed.
type snapshot struct {
	observed
	tunnels      []tunnelSnapshot               // by name
	predecessor  error                          // why the pod before this one must not end yet; nil if it may
	certificates map[string]routing.Certificate // by tunnel; the map is never changed
	wasReady     bool                           // the agent was ready once
}

// tunnelSnapshot is the state of one tunnel.
type tunnelSnapshot struct {
	name      string
	standby   bool
	hijacked  bool // new connections to its port do not reach it
	inForce   bool
	resultAt  time.Time // of the latest result, or when the tunnel was planned
	probed    bool
	up        bool // calls over a new connection are answered, or those over a client's open one
	failing   bool // new connections fail
	unknown   bool // the latest result of a probe is too old to say either
	took      time.Duration
	active    netip.Addr // the server that was reached last, else the one that is tried first
	zone      string     // of that one
	otherZone bool       // that, or the server of another connection, is not in the node's zone
	status    tunnelspec.TunnelStatus
	problems  []string // reasons of what is wrong now
}

func (a *Agent) publish() {
	s := &snapshot{observed: a.observed, predecessor: a.predecessorError(), certificates: a.certificates.Certificates()}
	for _, name := range slices.Sorted(maps.Keys(a.tunnels)) {
		s.tunnels = append(s.tunnels, a.snapshotOf(a.tunnels[name]))
	}
	s.wasReady = a.wasReady() || s.readyAtFirst(a.waitsForHealth()) == nil
	a.snapshot.Store(s)
}

// waiting returns the tunnels that need a client certificate and have none, also if none can be made.
func waiting(plan routing.Plan) []string {
	names := slices.Clone(plan.AwaitingCertificate)
	for _, t := range plan.Unusable {
		if t.Reason == routing.ClientCertificate {
			names = append(names, t.Name)
		}
	}
	return names
}

func (a *Agent) snapshotOf(state *tunnelState) tunnelSnapshot {
	status := a.status.Tunnels[state.Name]
	t := tunnelSnapshot{
		name: state.Name, standby: state.Standby, hijacked: isHijacked(state), inForce: !state.inForce.IsZero(), status: status,
		resultAt: state.resultAt, active: state.Active.Address, zone: state.Active.Zone,
	}
	if r := state.result; r != nil {
		t.probed, t.took, t.failing = true, r.Took, r.Err != nil
		t.unknown = time.Since(state.resultAt) > 3*(a.options.ProbeInterval+roundTime)
		// The agent's own connection may be the only one that is left.
		isOpen := r.Established && a.hasClients(state.Port)
		t.up = !t.unknown && (r.Err == nil || isOpen) && (!r.ServerOnly || status.Listening)
	}
	t.reached(state)
	t.otherZone = a.isOtherZone(t.zone) ||
		slices.ContainsFunc(a.otherConnected(state), func(m routing.MountTarget) bool { return a.isOtherZone(m.Zone) })
	t.problems = problemsOf(state, status)
	return t
}

// roundTime is longer than any round of probes takes.
const roundTime = 5 * time.Second

// isOtherZone reports whether a zone is not the node's. It is false if one of them is unknown.
func (a *Agent) isOtherZone(zone string) bool {
	return zone != "" && a.location.Zone != "" && zone != a.location.Zone
}

// reached sets the server that stunnel reached last, if it has: stunnel skips those that refuse.
func (t *tunnelSnapshot) reached(state *tunnelState) {
	for _, target := range state.MountTargets {
		if target.Address == t.status.Remote.Addr().Unmap() {
			t.active, t.zone = target.Address, target.Zone
		}
	}
}

func problemsOf(state *tunnelState, status tunnelspec.TunnelStatus) []string {
	var problems []string
	for _, p := range []*tunnelspec.Problem{status.Process, status.Connection} {
		if p != nil {
			problems = append(problems, string(p.Reason))
		}
	}
	if r := state.result; r != nil && r.Err != nil {
		problems = append(problems, "Probe"+probe.Reason(r.Err))
	}
	return problems
}

// ready returns nil when the node does everything for its tunnels that it can. The health of servers
// does not count, or an outage would stop every rollout.
func (s *snapshot) ready() error {
	switch {
	case s == nil || !s.hasTable:
		return errors.New("no table has been seen, neither now nor by an earlier run")
	case s.status.PID == 0:
		return errors.New("the supervisor does not run; the log of its container says why")
	case !s.planned:
		return errors.New("no plan of the tunnels has been made yet")
	}
	return s.require("not listening", func(t tunnelSnapshot) bool {
		return t.status.Listening && t.inForce || t.status.Process.Is(tunnelspec.ReasonPortTaken) // a restart would not help
	})
}

// readyAtFirst is ready for a pod that has not been ready yet. The old pod of an upgrade ends when it
// returns nil: this pod must serve all that the old one serves and, for a while after its start, its
// tunnels must be healthy.
func (s *snapshot) readyAtFirst(waitsForHealth bool) error {
	if err := s.ready(); err != nil {
		return err
	}
	if err := errorNaming("not readable in the table, so that only an older pod can know them", s.unknown); err != nil {
		return err
	}
	if !waitsForHealth {
		return s.predecessor
	}
	// Where a tunnel does not listen, a probe is answered by another process.
	if err := s.require("not healthy yet", func(t tunnelSnapshot) bool { return t.up && t.inForce }); err != nil {
		return err
	}
	return cmp.Or(errorNaming("no client certificate yet", waiting(s.plan)), s.predecessor)
}

// waitsForHealth reports whether the pod has started so recently that its tunnels must be healthy.
func (a *Agent) waitsForHealth() bool { return time.Since(a.started) < a.options.HealthWait }

// require returns an error that names the tunnels for which the condition does not hold.
func (s *snapshot) require(what string, holds func(tunnelSnapshot) bool) error {
	var names []string
	for _, t := range s.tunnels {
		if !holds(t) {
			names = append(names, t.name)
		}
	}
	return errorNaming(what, names)
}

// errorNaming returns an error that names the first few, nil without names.
func errorNaming(what string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", what, status.FirstFew(names))
}

func (a *Agent) wasReady() bool {
	s := a.snapshot.Load()
	return s != nil && s.wasReady
}

// Ready returns nil when the agent and its tunnels are ready to serve.
func (a *Agent) Ready() error {
	s := a.snapshot.Load()
	if a.wasReady() {
		return s.ready()
	}
	return s.readyAtFirst(a.waitsForHealth())
}

// maxSync is far longer than any sync takes.
const maxSync = time.Minute

// Healthy returns nil as long as the loop syncs.
func (a *Agent) Healthy() error {
	last := time.Unix(0, cmp.Or(a.lastSync.Load(), a.started.UnixNano()))
	if since := time.Since(last); since > maxSync {
		return fmt.Errorf("the last sync of the loop was %s ago", since.Round(time.Second))
	}
	return nil
}

func (a *Agent) checks(o httpserver.Options) httpserver.Options {
	o.Healthy = []httpserver.Check{{Name: "loop", Func: a.Healthy}}
	o.Ready = []httpserver.Check{{Name: "tunnels", Func: a.Ready}}
	return o
}

// otherPort is a port that another pod of this node listens on.
type otherPort struct {
	result *probe.Result // of the latest probe; nil before the first
	usedAt time.Time     // when it last had clients
}

// observePredecessor records the ports on which another pod of this node listens, until this pod is ready. The
// sockets of this pod are those that its supervisor reports.
func (a *Agent) observePredecessor(now time.Time) {
	before := a.predecessor
	a.predecessor = map[netip.AddrPort]otherPort{}
	if a.wasReady() {
		return
	}
	listeners, err := a.options.Listening()
	if a.listeningErr.IsNew(err) {
		a.options.Log.Warn("listening sockets of this node cannot be listed, so this pod becomes ready whatever the pod before it serves", "err", err)
	}
	own := map[netip.AddrPort]int{}
	for _, t := range a.status.Tunnels {
		own[t.Accept] = 1
	}
	for address, inodes := range listeners {
		if address == loopback(int(address.Port())) && len(inodes) > own[address] &&
			!slices.Contains(a.options.Routing.Reserved, int(address.Port())) {
			other := before[address]
			if a.hasClients(int(address.Port())) {
				other.usedAt = now
			}
			a.predecessor[address] = other
		}
	}
}

func loopback(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(wellknown.LoopbackAddress), uint16(port))
}

// inability is why this pod cannot serve a port.
type inability struct{ tunnel, reason string }

// inabilities returns why this pod cannot serve ports of the predecessor; it has none of those that it can. A port
// that the table does not have counts only while it is used: the predecessor closes it soon.
func (a *Agent) inabilities() map[netip.AddrPort]inability {
	found := map[netip.AddrPort]inability{}
	for address, other := range a.predecessor {
		if time.Since(other.usedAt) < inUseFor {
			found[address] = inability{"port " + strconv.Itoa(int(address.Port())), "no target of the table has the port"}
		}
	}
	set := func(port int, tunnel, reason string) {
		if _, ok := a.predecessor[loopback(port)]; ok {
			found[loopback(port)] = inability{tunnel, reason}
		}
	}
	for _, key := range a.table.Keys() {
		port, _ := a.table.Port(key)
		set(port, routing.Name(key), "it has no tunnel yet")
	}
	for _, t := range a.plan.Unusable {
		set(t.Port, t.Name, string(t.Reason))
	}
	for _, state := range a.tunnels {
		if t := a.snapshotOf(state); t.up && t.inForce {
			delete(found, loopback(state.Port))
		} else {
			set(state.Port, t.name, cmp.Or(strings.Join(t.problems, ", "), "it is not healthy yet"))
		}
	}
	return found
}

// predecessorTasks probes the predecessor where this pod cannot serve. It waits as long as the pod waits for
// its tunnels to become healthy, because a probe makes the predecessor run stunnel for an unused tunnel.
func (a *Agent) predecessorTasks() []probe.Task {
	if len(a.predecessor) == 0 || a.waitsForHealth() {
		return nil
	}
	var tasks []probe.Task
	for address := range a.inabilities() {
		tasks = append(tasks, probe.Task{Name: address.String(), Accept: address, InUse: true})
	}
	return tasks
}

// handlePredecessor records the result of a probe of the predecessor. It returns false for another result.
func (a *Agent) handlePredecessor(result probe.Result) bool {
	if result.Name != result.Accept.String() {
		return false
	}
	if other, listens := a.predecessor[result.Accept]; listens && !result.Late {
		other.result = &result
		a.predecessor[result.Accept] = other
	}
	return true
}

// predecessorError returns why the predecessor must not end yet: it serves what this pod cannot. What neither
// serves is no reason, or an outage of EFS would stop every rollout.
func (a *Agent) predecessorError() error {
	if len(a.predecessor) == 0 {
		return nil
	}
	var served, reasons, unknown []string
	inabilities := a.inabilities()
	for _, address := range slices.SortedFunc(maps.Keys(inabilities), netip.AddrPort.Compare) {
		why := inabilities[address]
		switch r := a.predecessor[address].result; {
		case r == nil:
			unknown = append(unknown, why.tunnel)
		case r.Err == nil || r.Established:
			served = append(served, why.tunnel)
			if !slices.Contains(reasons, why.reason) {
				reasons = append(reasons, why.reason)
			}
		}
	}
	if len(served) > 0 {
		return fmt.Errorf("the pod before this one serves %s, this one cannot: %s", status.FirstFew(served), status.FirstFew(reasons))
	}
	return errorNaming("not known yet whether the pod before this one serves what this one cannot", unknown)
}
