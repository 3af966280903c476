package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"

	"gnuthought.com/efs-stunnel/pkg/api/tunnelspec"
	"gnuthought.com/efs-stunnel/pkg/efs/topology"
	"gnuthought.com/efs-stunnel/pkg/node/routing"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/program/loop"
)

// statusLifetime is how long a supervisor counts as running after it wrote its status.
const statusLifetime = 3 * tunnelspec.StatusInterval

// tableProblem is what is wrong with the ConfigMap; the zero value means nothing.
type tableProblem struct {
	synced   bool
	text     string // that was decoded; "" also without a ConfigMap
	deleted  bool
	err      error            // of decoding the whole table
	rejected map[string]error // of targets, by the key as written
}

// observe reads all inputs. It returns whether there is enough for a plan.
func (a *Agent) observe(now time.Time) bool {
	n := a.inbox.get()
	a.location = a.currentLocation(n)
	a.readTable(n)
	a.observeRoutes(now)
	a.readStatus(now)
	a.observeClients(now)
	a.observePredecessor(now)
	return a.hasTable && (n.metadataTried || a.location.Known())
}

// readTable decodes the ConfigMap if it has changed. If it cannot be decoded, the last good table
// remains in force.
func (a *Agent) readTable(n inputs) {
	if !n.synced || a.problem.synced && n.deleted == a.problem.deleted && n.table == a.problem.text {
		return
	}
	if n.deleted {
		a.problem = tableProblem{synced: true, deleted: true}
		return
	}
	table, rejected, err := routing.ReadTable([]byte(n.table), a.table)
	a.problem = tableProblem{synced: true, text: n.table, err: err, rejected: rejected}
	if err != nil {
		return
	}
	a.table, a.hasTable, a.unknown = table, true, unreadableTargets(rejected, table)
	a.routesAt = time.Time{}
	if err := a.options.Dir.Table().Write(ports.Encode(table)); err != nil {
		a.options.Log.Warn("table cannot be stored; a restart without the apiserver would miss it", "err", err)
	}
}

// routesInterval is the time between two observations of the node's routes.
const routesInterval = 10 * time.Second

// observeRoutes records to which family of addresses the node has no route. That matters only if the
// table has both, and says nothing while there is a route to neither.
func (a *Agent) observeRoutes(now time.Time) {
	if now.Sub(a.routesAt) < routesInterval {
		return
	}
	before := a.routes
	a.routes, a.routesAt = routing.Routes{}, now
	if ipv4, ipv6 := routing.Addresses(a.table); len(ipv4) > 0 && len(ipv6) > 0 {
		has4, has6 := a.options.HasRoute(ipv4...), a.options.HasRoute(ipv6...)
		a.routes = routing.Routes{NoIPv4: !has4 && has6, NoIPv6: !has6 && has4}
	}
	if a.routes != before {
		a.options.Log.Info("routes of the node changed", "reason", a.routes)
	}
}

// unreadableTargets are rejected targets of which there is no earlier version, either.
func unreadableTargets(rejected map[string]error, table ports.Table) []string {
	var names []string
	for _, id := range slices.Sorted(maps.Keys(rejected)) {
		if _, known := table.Targets[id]; !known {
			names = append(names, fmt.Sprintf("%.60q", id))
		}
	}
	return names
}

// readStatus reads the supervisor's status, which is empty when the supervisor does not run.
func (a *Agent) readStatus(now time.Time) {
	status, err := a.options.Status()
	if err == nil && a.isFresh(status, now) {
		a.status = status
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.options.Log.Debug("supervisor's status cannot be read", "err", err)
	}
	a.status = tunnelspec.Status{}
}

// isFresh measures the age of the status by the monotonic clock, which cannot be set, from when the
// agent saw it change. Only the age of the first one is by the time written in it.
func (a *Agent) isFresh(status tunnelspec.Status, now time.Time) bool {
	if !status.UpdatedAt.Equal(a.statusUpdatedAt) {
		a.statusSeenAt = now
		if a.statusUpdatedAt.IsZero() {
			a.statusSeenAt = now.Add(-max(0, now.Sub(status.UpdatedAt)))
		}
		a.statusUpdatedAt = status.UpdatedAt
	}
	return now.Sub(a.statusSeenAt) <= statusLifetime
}

// standby are the tunnels that are new to this pod and whose port another pod has, or will have: that pod
// serves what comes into the table, too. They are probed on another address until this pod is ready, and listen
// on the port beside the other pod then.
func (a *Agent) standby() map[string]bool {
	standby := map[string]bool{}
	if a.wasReady() {
		return standby
	}
	wanted := map[string]int{} // ports by tunnel; a target that left the table may still be on standby
	for name, state := range a.states {
		wanted[name] = state.Port
	}
	for _, key := range a.table.Keys() {
		wanted[routing.Name(key)], _ = a.table.Port(key)
	}
	for name, port := range wanted {
		state, known := a.states[name]
		isOurs := known && state.Port == port && !state.Standby
		standby[name] = !isOurs && (len(a.predecessor) > 0 || !bindable(loopback(port)))
	}
	return standby
}

// bindable reports whether a process could listen at the address now. It binds without listening, which
// neither clients nor other listeners notice.
func bindable(address netip.AddrPort) bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // the supervisor will report the error
	}
	defer func() { _ = syscall.Close(fd) }() // it holds nothing that could be lost
	// As stunnel does: connections that are ending do not count.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return true
	}
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()})
	return !errors.Is(err, syscall.EADDRINUSE)
}

func (a *Agent) input(now time.Time) (routing.Input, error) {
	files, err := a.options.Dir.Names()
	if err != nil {
		return routing.Input{}, err
	}
	settings := a.options.Routing
	settings.Region = cmp.Or(a.options.Region, a.location.Region)
	settings.CASum = a.roots.read(settings.CAFile, a.options.Log)
	settings.OwnCAFile = func(tunnel string) string { return a.options.Dir.Authorities(tunnel).Path() }
	settings.DNSSuffix = topology.DNSSuffix(settings.Region)
	in := routing.Input{
		Table: a.table, Location: a.location, Routes: a.routes, States: a.states, Files: files, Specs: a.written,
		Standby: a.standby(), Used: a.used(now), Certificates: a.certificates.Certificates(), Settings: settings, Now: now,
	}
	a.certificates.SetIdentities(routing.Identities(in))
	return in, nil
}

const (
	clientsInterval = time.Second // between two listings of connections
	// inUseFor is how long a tunnel counts as in use after its last connection: the kernel's client has
	// none while a mount target is silent or a process is restarted.
	inUseFor = time.Minute
)

// observeClients lists the connections of other clients than the agent.
func (a *Agent) observeClients(now time.Time) {
	if now.Sub(a.clientsAt) < clientsInterval {
		return
	}
	a.clientsAt = now
	clients, err := a.options.Clients()
	if err != nil && !a.clientsUnknown {
		a.options.Log.Warn("connections of this node cannot be listed; all tunnels count as in use", "err", err)
	}
	a.clients, a.clientsUnknown = clients, err != nil
	a.metrics.sockets.Set(number(a.clientsUnknown))
}

// hasClients reports whether other clients than the agent are connected to a tunnel's port, whether
// this pod or another one listens there. It is true if that is unknown.
func (a *Agent) hasClients(port int) bool {
	return a.clientsUnknown || a.clients[loopback(port)] > 0
}

// isUsedNow reports whether a tunnel counts as in use from now on. While that is unknown, those do whose stunnel runs: the
// probes of the others would start every stunnel of the node, where memory may be short.
func (a *Agent) isUsedNow(t routing.Tunnel) bool {
	return a.hasClients(t.Port) && (!a.clientsUnknown || a.status.Tunnels[t.Name].State == tunnelspec.StateRunning)
}

// used are the tunnels that have, or just had, clients, also those that are missing in the table.
func (a *Agent) used(now time.Time) map[string]bool {
	used := map[string]bool{}
	for name, state := range a.states {
		used[name] = a.hasClients(state.Port) || a.tunnels[name].inUse(now)
	}
	return used
}

// inUse reports whether other clients than the agent have, or just had, connections to the tunnel.
func (t *tunnelState) inUse(now time.Time) bool {
	return t != nil && !t.usedAt.IsZero() && now.Sub(t.usedAt) < inUseFor
}

// maxMetadataWait is the longest time between two requests to a metadata service that does not answer.
const maxMetadataWait = 5 * time.Minute

// readMetadata requests the instance metadata until the service answers. The labels of the node are
// used meanwhile.
func (a *Agent) readMetadata(ctx context.Context) {
	policy := backoff.NewExponentialBackOff(backoff.WithMaxInterval(maxMetadataWait), backoff.WithMaxElapsedTime(0))
	first := true
	_ = backoff.Retry(func() error {
		found, err := a.options.Metadata(ctx)
		a.inbox.put(func(n *inputs) {
			n.metadataTried = true
			if err == nil {
				n.metadata = found
			}
		})
		if err != nil && first {
			a.options.Log.Info("instance metadata cannot be read; using the node's labels", "err", err)
		}
		first = false
		return err
	}, backoff.WithContext(policy, ctx)) // the error is the context's
}

// currentLocation returns the location from the instance metadata, else from the node's labels, else
// the one before, also of an earlier run.
func (a *Agent) currentLocation(n inputs) routing.Location {
	if n.metadata.Known() {
		return n.metadata
	}
	if n.node != nil {
		if labels := routing.Location(topology.FromLabels(n.node)); labels.Known() {
			return labels
		}
	}
	return a.location
}

// rootsFile is the file of trusted roots, as it was last read. The zero rootsFile was never read.
type rootsFile struct {
	info fs.FileInfo // nil before the first reading
	sum  string
	err  loop.LastError // of the latest reading
}

// read returns the SHA-256 of the file, which it reads only when that has changed. It is that of the
// last reading while the file cannot be read.
func (r *rootsFile) read(path string, log *slog.Logger) string {
	err := r.update(path)
	if r.err.IsNew(err) {
		log.Warn("trusted roots cannot be read; a change of them would be missed", "err", err)
	}
	return r.sum
}

func (r *rootsFile) update(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if r.info != nil && os.SameFile(info, r.info) && info.ModTime().Equal(r.info.ModTime()) && info.Size() == r.info.Size() {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r.info, r.sum = info, fmt.Sprintf("%x", sha256.Sum256(text))
	return nil
}
