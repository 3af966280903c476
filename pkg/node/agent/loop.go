package agent

import (
	"bytes"
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/node/clientcert"
	"gnuthought.com/efs-stunnel/pkg/node/probe"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/program/logging"
)

// Times of the loop.
const (
	syncInterval = 250 * time.Millisecond // between two readings of the supervisor's status and the files
	// settleTime is the wait after a change, so that changes that come together cause one sync.
	settleTime = 20 * time.Millisecond
)

// tunnelState is the state of a planned tunnel.
type tunnelState struct {
	routing.Tunnel
	inForce  time.Time     // since when the supervisor runs the current specification; zero while it does not
	result   *probe.Result // nil before the first
	resultAt time.Time     // when that came; before the first, when the tunnel was planned
	failedAt time.Time     // of the latest failed connection for which the tunnel was probed
	usedAt   time.Time     // when other connections than the agent's were last seen
	judged   *probe.Result // the latest that says how the tunnel is, for its present specification; nil before it
	took     time.Duration // of probes of its mount target; 0 before the first
}

// loop syncs after changes, results and syncInterval, until the context ends.
func (a *Agent) loop(ctx context.Context) {
	defer a.probes.Close()
	due, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.inbox.wake:
			due = sooner(due, settleTime)
		case result := <-a.results:
			if a.handleResult(result) {
				due = sooner(due, 0)
			}
		case <-timer.C:
			now := time.Now()
			a.sync(ctx, now)
			due = now.Add(syncInterval)
		}
		timer.Reset(time.Until(due))
	}
}

// sooner never postpones a sync, so that changes without end cannot keep it from running.
func sooner(due time.Time, wait time.Duration) time.Time {
	if t := time.Now().Add(wait); t.Before(due) {
		return t
	}
	return due
}

func (a *Agent) sync(ctx context.Context, now time.Time) {
	defer a.lastSync.Store(now.UnixNano())
	if a.observe(now) {
		a.recordResult(a.reconcile(ctx, now))
	}
	a.report(ctx, now)
	a.publish()
}

func (a *Agent) reconcile(ctx context.Context, now time.Time) error {
	in, err := a.input(now)
	if err != nil {
		return err
	}
	a.plan, a.planned = routing.NewPlan(in), true
	a.states = a.plan.States
	return a.apply(ctx, in.Files)
}

func (a *Agent) recordResult(err error) {
	switch isNew, ended := a.lastErr.Update(err); {
	case isNew:
		a.options.Log.Error("tunnels cannot be updated", "err", err)
	case ended:
		a.options.Log.Info("tunnels can be updated again")
	}
	a.metrics.failed.Set(number(err != nil))
}

// apply writes the planned specifications. A failure for one tunnel affects no other.
func (a *Agent) apply(ctx context.Context, files []string) error {
	errs := []error{a.save()}
	for _, name := range a.plan.Remove {
		errs = append(errs, a.options.Dir.Remove(name))
		delete(a.written, name)
		a.logOf(name).Info("tunnel removed, as its target is gone")
	}
	states := map[string]*tunnelState{}
	for _, tunnel := range a.plan.Tunnels {
		state := cmp.Or(a.tunnels[tunnel.Name], &tunnelState{resultAt: time.Now()})
		if state.Active.Address != tunnel.Active.Address {
			state.took = 0
		}
		state.Tunnel = tunnel
		if a.isUsedNow(tunnel) {
			state.usedAt = a.clientsAt
		}
		states[tunnel.Name] = state
		if !slices.Contains(files, tunnel.Name) || !bytes.Equal(a.written[tunnel.Name], tunnel.Spec) {
			errs = append(errs, a.write(tunnel))
		}
	}
	a.tunnels = states
	a.observeSupervisor()
	a.probes.SetTasks(ctx, a.tasks())
	return logging.Errors(errs...)
}

func (a *Agent) write(tunnel routing.Tunnel) error {
	file, authorities := a.options.Dir.Spec(tunnel.Name), a.options.Dir.Authorities(tunnel.Name)
	changed := !file.HasContent(tunnel.Spec)
	if tunnel.Authorities != "" { // before what names the file
		if err := authorities.Write([]byte(tunnel.Authorities)); err != nil {
			return err
		}
	}
	err := file.Write(tunnel.Spec)
	if err == nil && tunnel.CAFile != authorities.Path() {
		err = authorities.Remove()
	}
	if err != nil {
		return err
	}
	a.written[tunnel.Name] = tunnel.Spec
	if tunnel.Identity == (clientcert.Identity{}) && tunnel.Cert == "" {
		err = a.options.Dir.Certificate(tunnel.Name).Remove() // an earlier identity may have needed one
	}
	if changed {
		a.logOf(tunnel.Name).Info("tunnel's specification written", "port", tunnel.Port,
			"mountTarget", tunnel.Active.Address)
	}
	return err
}

// observeSupervisor records which tunnels run with their current specification. A tunnel is probed at
// once when it starts to, and when a client's connection fails although the last probe succeeded.
func (a *Agent) observeSupervisor() {
	for name, state := range a.tunnels {
		status := a.status.Tunnels[name]
		runs := status.Listening && status.Generation == tunnelspec.Generation(state.Spec)
		switch {
		case !runs:
			state.inForce = time.Time{}
		case state.inForce.IsZero():
			state.inForce = time.Now()
			a.probes.ProbeNow(name)
		case status.Connection != nil && status.Connection.At != state.failedAt && state.result != nil && state.result.Err == nil:
			state.failedAt = status.Connection.At
			a.probes.ProbeNow(name)
		}
	}
}

func (a *Agent) tasks() []probe.Task {
	var tasks []probe.Task
	for _, t := range a.plan.Tunnels {
		// As in the tunnel's stunnel.conf.
		peer := probe.Peer{Host: t.CheckHost, CAFile: t.CAFile, Cert: t.Cert, Key: t.Key}
		state, task := a.tunnels[t.Name], probe.Task{Name: t.Name, Accept: t.Accept, Peer: peer}
		for _, server := range t.MountTargets {
			task.Servers = append(task.Servers, a.server(server.Address))
		}
		task.AlsoProbe = a.alsoProbe(state)
		// Tunnels without clients are probed without a connection through stunnel, which may be stopped.
		// Only such a connection shows whether a port is hijacked no longer.
		if task.InUse = state.inUse(time.Now()); !task.InUse && !isHijacked(state) {
			task.DirectServer = a.server(t.Active.Address)
		}
		task.Renew = task.InUse && (!a.hasClients(t.Port) || a.status.Tunnels[t.Name].Connection != nil)
		tasks = append(tasks, task)
	}
	return append(tasks, a.predecessorTasks()...)
}

// alsoProbe returns the mount targets of old connections, and the nearest one if any connection uses
// another.
func (a *Agent) alsoProbe(state *tunnelState) []netip.AddrPort {
	others, nearest := a.otherConnected(state), state.MountTargets[0]
	listed := func(target routing.MountTarget) bool { return slices.Contains(state.MountTargets, target) }
	if !slices.Contains(others, nearest) && (state.HasNearer() || slices.ContainsFunc(others, listed)) {
		others = append(others, nearest)
	}
	var servers []netip.AddrPort
	for _, target := range others {
		servers = append(servers, a.server(target.Address))
	}
	return servers
}

func (a *Agent) server(address netip.Addr) netip.AddrPort {
	return netip.AddrPortFrom(address, a.options.Routing.ServerPort)
}

// healthyAfter is how long a condition must not be found before it has ended, as that of a tunnel whose
// probes succeed again.
const healthyAfter = 30 * time.Second

// handleResult evaluates the result of a probe. It returns whether a sync is needed at once.
func (a *Agent) handleResult(result probe.Result) bool {
	if a.handlePredecessor(result) {
		return false
	}
	state, ok := a.tunnels[result.Name]
	if !ok || state.Accept != result.Accept {
		return false // the tunnel was removed or changed
	}
	if result.Late {
		a.metrics.late.Inc()
		return false
	}
	state.result, state.resultAt = &result, time.Now()
	a.metrics.probes.WithLabelValues(cmp.Or(probe.Reason(result.Err), "success")).Observe(result.Took.Seconds())
	if state.inForce.IsZero() || result.Began.Before(state.inForce) {
		return false // its process is starting or has ended, which the supervisor's status says
	}
	state.judged = state.result
	state.addTook(result)
	if isHijacked(state) {
		return false // the answer is another process', and says nothing about the tunnel
	}
	next, action := a.states[result.Name].Next(a.observationOf(result, state), state.MountTargets)
	a.states[result.Name] = next
	if action == routing.NoAction {
		return false
	}
	a.reportAction(state, next, action)
	state.inForce = time.Time{} // results of probes that run now are about the earlier specification
	return true
}

// isHijacked reports whether the node redirects new connections to the tunnel's port.
func isHijacked(state *tunnelState) bool {
	return state.result != nil && probe.Reason(state.result.Err) == tunnelspec.ProbeHijacked
}

func (a *Agent) observationOf(r probe.Result, state *tunnelState) routing.Observation {
	tunnel := a.status.Tunnels[state.Name]
	o := routing.Observation{
		At: r.At, Healthy: r.Err == nil, TimedOut: probe.Reason(r.Err) == tunnelspec.ProbeTimeout,
		Stuck: r.Stuck, Established: r.Established, Direct: map[netip.Addr]routing.DirectResult{},
		HasConnections: len(tunnel.Servers) > 0, HandshakeFailed: handshakeFailed(tunnel.Connection),
	}
	silent := map[netip.Addr]bool{}
	for server, err := range r.Direct {
		o.Direct[server.Addr()] = directResultOf(err)
		silent[server.Addr()] = isSilent(err)
	}
	for _, target := range a.otherConnected(state) {
		o.FarConnection = o.FarConnection || target.Distance > state.MountTargets[0].Distance
		o.Stuck = o.Stuck || o.Healthy && silent[target.Address]
	}
	return o
}

// isSilent reports whether the server does not answer at all. One that refuses new connections may
// still serve open ones.
func isSilent(err error) bool {
	reason := probe.Reason(err)
	return reason == tunnelspec.ProbeTimeout || reason == tunnelspec.ProbeUnreachable
}

// otherConnected returns the mount targets, except the active one, to which the tunnel has open
// connections: stunnel tries the next server when the first one refuses, and the NFS client keeps a
// connection for as long as it is used. One that left the table has an address only: a mount target is removed from
// the table while it is being deleted and still serves. The tunnel is restarted only when it is silent, because the
// agent does not know when no write is under way.
func (a *Agent) otherConnected(state *tunnelState) []routing.MountTarget {
	var others []routing.MountTarget
	for _, server := range a.status.Tunnels[state.Name].Servers {
		target := routing.MountTarget{Address: server.Addr().Unmap()}
		listed := func(t routing.MountTarget) bool { return t.Address == target.Address }
		if i := slices.IndexFunc(state.MountTargets, listed); i >= 0 {
			target = state.MountTargets[i]
		}
		if target != state.Active {
			others = append(others, target)
		}
	}
	return others
}

// directResultOf classifies the error of a direct probe. Whether the tunnel's handshake succeeds is
// certain only from stunnel, which verifies certificates by OpenSSL's rules.
func directResultOf(err error) routing.DirectResult {
	switch probe.Reason(err) {
	case "":
		return routing.DirectAnswered
	case tunnelspec.ProbeCertificate, tunnelspec.ProbeHandshake:
		return routing.DirectHandshakeFailed
	case tunnelspec.ProbeDenied, tunnelspec.ProbeOther:
		return routing.DirectUnknown
	}
	return routing.DirectDown
}

// handshakeFailed reports whether stunnel's TLS handshake with the server failed. A refused client
// certificate does not count: the file system policy is the same at all mount targets.
func handshakeFailed(p *tunnelspec.Problem) bool {
	return p.Is(tunnelspec.ReasonCertificateHostMismatch, tunnelspec.ReasonCertificateExpired,
		tunnelspec.ReasonCertificateUntrusted, tunnelspec.ReasonTLSVersion, tunnelspec.ReasonNotTLS,
		tunnelspec.ReasonHandshakeFailed)
}
