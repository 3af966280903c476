package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/httpserver"
	"gnuthought.com/efs-stunnel/pkg/tunnel/probe"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
)

// view is what the loop last saw, for those who look from outside. It is never changed.
type view struct {
	hasTable    bool
	tableGood   bool
	updated     time.Time // by the table's own word
	place       routing.Place
	supervised  bool
	memoryLimit uint64    // of each process, in bytes; 0 while no supervisor tells
	heardAt     time.Time // when the supervisor's status was last seen to change
	planned     bool
	tunnels     []tunnelView // by name
	unknown     []string     // targets of which nothing was ever read
	troubles    []routing.Trouble
	waiting     []string // tunnels that need a client certificate, and have none
	// certificates are by tunnel; the map is never changed.
	certificates map[string]routing.Certificate
	once         bool // it was ready before
}

// tunnelView is one tunnel.
type tunnelView struct {
	name     string
	standby  bool
	hijacked bool // new connections to its port do not reach it
	inForce  bool
	probed   bool
	up       bool
	took     time.Duration
	active   netip.Addr // the server that was reached last, else the one that is tried first
	zone     string     // of that one
	far      bool       // that, or the server of another connection, is not in the node's zone
	status   supervise.Tunnel
	problems []string // reasons of what is wrong now
}

// show makes a view of what the loop knows.
func (a *Agent) show() {
	before := a.view.Load()
	v := &view{
		hasTable: a.hasTable, tableGood: a.hasTable && a.problem.err == nil && !a.problem.deleted && len(a.problem.rejected) == 0,
		updated: a.table.LastUpdate, place: a.place, supervised: a.status.PID != 0, heardAt: a.heardAt, memoryLimit: a.status.MemoryLimit,
		planned: a.planned, unknown: a.unknown, troubles: a.plan.Troubles, once: before != nil && before.once,
	}
	for _, name := range slices.Sorted(maps.Keys(a.tunnels)) {
		v.tunnels = append(v.tunnels, a.viewOf(a.tunnels[name]))
	}
	v.waiting, v.certificates = waiting(a.plan), a.certificates.Certificates()
	v.once = v.once || v.begun(a.waits()) == nil
	a.view.Store(v)
}

// waiting also has those whose certificate cannot be made for the moment.
func waiting(plan routing.Plan) []string {
	names := slices.Clone(plan.Waiting)
	for _, t := range plan.Troubles {
		if t.Reason == routing.ClientCertificate {
			names = append(names, t.Name)
		}
	}
	return names
}

func (a *Agent) viewOf(state *tunnelState) tunnelView {
	status := a.status.Tunnels[state.Name]
	t := tunnelView{
		name: state.Name, standby: state.Standby, hijacked: isHijacked(state), inForce: !state.inForce.IsZero(), status: status,
		active: state.Active.Address, zone: state.Active.Zone,
	}
	if r := state.result; r != nil {
		t.probed, t.took = true, r.Took
		t.up = r.Err == nil || r.Established
	}
	t.reached(state)
	t.far = a.isFar(t.zone) || slices.ContainsFunc(a.strays(state), func(m routing.MountTarget) bool { return a.isFar(m.Zone) })
	t.problems = problemsOf(state, status)
	return t
}

// isFar leaves unknown zones alone.
func (a *Agent) isFar(zone string) bool {
	return zone != "" && a.place.Zone != "" && zone != a.place.Zone
}

// reached prefers the server that stunnel says it reached: it skips those that refuse.
func (t *tunnelView) reached(state *tunnelState) {
	remote, err := netip.ParseAddrPort(t.status.Remote)
	if err != nil {
		return
	}
	for _, target := range state.Nearest {
		if target.Address == remote.Addr().Unmap() {
			t.active, t.zone = target.Address, target.Zone
		}
	}
}

func problemsOf(state *tunnelState, status supervise.Tunnel) []string {
	var problems []string
	for _, p := range []*supervise.Problem{status.Process, status.Connection} {
		if p != nil {
			problems = append(problems, string(p.Reason))
		}
	}
	if r := state.result; r != nil && r.Err != nil {
		problems = append(problems, "Probe"+probe.Reason(r.Err))
	}
	return problems
}

// ready is nil when everything is there that this node can do for its tunnels. What servers do
// does not count, or an outage would stop every rollout.
func (v *view) ready() error {
	switch {
	case v == nil || !v.hasTable:
		return errors.New("no table has been seen, neither now nor by an earlier run")
	case !v.supervised:
		return errors.New("the supervisor does not run")
	case !v.planned:
		return errors.New("no plan of the tunnels has been made yet")
	}
	return v.all("not listening", func(t tunnelView) bool { return t.status.Listening && t.inForce || t.crowdedOut() })
}

// crowdedOut: nobody could serve a tunnel on a port that strangers have.
func (t tunnelView) crowdedOut() bool {
	p := t.status.Process
	return p != nil && p.Reason == supervise.ReasonPortTaken
}

// begun is ready for the first time: nothing is left to the old pod of an upgrade that this one
// could not do and, for a while after the start, the tunnels are healthy.
func (v *view) begun(waits bool) error {
	if err := v.ready(); err != nil {
		return err
	}
	if err := naming("not readable in the table, so that only an older pod can know them", v.unknown); err != nil || !waits {
		return err
	}
	// What answers in place of a tunnel that does not listen here is somebody else's.
	if err := v.all("not healthy yet", func(t tunnelView) bool { return t.up && t.inForce }); err != nil {
		return err
	}
	return naming("no client certificate yet", v.waiting)
}

// waits says whether health is still waited for.
func (a *Agent) waits() bool { return time.Since(a.started) < a.options.HealthWait }

// all says of which tunnels something does not hold.
func (v *view) all(what string, holds func(tunnelView) bool) error {
	var names []string
	for _, t := range v.tunnels {
		if !holds(t) {
			names = append(names, t.name)
		}
	}
	return naming(what, names)
}

// naming names the first few.
func naming(what string, names []string) error {
	const most = 5
	if len(names) == 0 {
		return nil
	}
	rest := ""
	if len(names) > most {
		rest = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return fmt.Errorf("%s: %s%s", what, strings.Join(names, ", "), rest)
}

// Ready is nil when the agent and its tunnels are ready to serve.
func (a *Agent) Ready() error {
	v := a.view.Load()
	if v != nil && v.once {
		return v.ready()
	}
	return v.begun(a.waits())
}

// maxLook is far longer than any look takes.
const maxLook = time.Minute

// Healthy is nil as long as the loop goes round.
func (a *Agent) Healthy() error {
	last := time.Unix(0, cmp.Or(a.lastLook.Load(), a.started.UnixNano()))
	if since := time.Since(last); since > maxLook {
		return fmt.Errorf("the loop has not gone round for %s", since.Round(time.Second))
	}
	return nil
}

func (a *Agent) checks(o httpserver.Options) httpserver.Options {
	o.Healthy = []httpserver.Check{{Name: "loop", Func: a.Healthy}}
	o.Ready = []httpserver.Check{{Name: "tunnels", Func: a.Ready}}
	return o
}
