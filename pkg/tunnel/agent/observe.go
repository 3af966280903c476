package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/tunnel/routing"
	"gnuthought.com/efs-stunnel/pkg/tunnel/supervise"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// statusLife is how long a status file speaks for its supervisor.
const statusLife = 3 * supervise.StatusInterval

// tableProblem is what is wrong with the ConfigMap; the zero tableProblem is nothing.
type tableProblem struct {
	heard    bool
	text     string // that was read; "" also when there is none
	deleted  bool
	err      error // of all of it
	rejected []routing.Rejected
}

// observe takes in what is new. It says whether enough is known for a plan.
func (a *Agent) observe(now time.Time) bool {
	n := a.inbox.get()
	a.place = a.whereabouts(n)
	a.readTable(n)
	a.readStatus(now)
	return a.hasTable && (n.asked || a.place.Known())
}

// readTable decodes a text that is new. Whatever is wrong with it, the last good table stays.
func (a *Agent) readTable(n news) {
	if !n.heard || a.problem.heard && n.deleted == a.problem.deleted && n.text == a.problem.text {
		return
	}
	if n.deleted {
		a.problem = tableProblem{heard: true, deleted: true}
		return
	}
	table, rejected, err := routing.ReadTable([]byte(n.text), a.table)
	a.problem = tableProblem{heard: true, text: n.text, err: err, rejected: rejected}
	if err != nil {
		return
	}
	a.table, a.hasTable, a.unknown = table, true, neverRead(rejected, table)
	if err := a.options.Dir.WriteTable(ports.Encode(table)); err != nil {
		a.options.Log.Warn("table could not be kept for a start without the apiserver", "err", err)
	}
}

// neverRead are rejected targets of which there is nothing last, either.
func neverRead(rejected []routing.Rejected, table ports.Table) []string {
	var names []string
	for _, r := range rejected {
		if _, known := table.Targets[r.FileSystem]; !known {
			names = append(names, fmt.Sprintf("%.60q", r.FileSystem))
		}
	}
	return names
}

// readStatus forgets what a supervisor said that does not run any more.
func (a *Agent) readStatus(now time.Time) {
	status, err := a.options.Status()
	if err == nil && a.isFresh(status, now) {
		a.status = status
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.options.Log.Debug("supervisor's status cannot be read", "err", err)
	}
	a.status = supervise.Status{}
}

// isFresh goes by the agent's own clock, which cannot be set, since it saw the status change. Only
// of the first one it cannot know how old it is but by what is written there.
func (a *Agent) isFresh(status supervise.Status, now time.Time) bool {
	if !status.UpdatedAt.Equal(a.heard) {
		a.heardAt = now
		if a.heard.IsZero() {
			a.heardAt = now.Add(-max(0, now.Sub(status.UpdatedAt)))
		}
		a.heard = status.UpdatedAt
	}
	return now.Sub(a.heardAt) <= statusLife
}

// standby are the tunnels that are new to this pod and whose port another pod has: they prove
// themselves beside it until this pod is ready, and listen on the port with it from then on.
func (a *Agent) standby() map[string]bool {
	standby := map[string]bool{}
	if v := a.view.Load(); v != nil && v.once {
		return standby
	}
	address := netip.MustParseAddr(wellknown.LoopbackAddress)
	for _, key := range a.table.Keys() {
		name := routing.Name(key)
		port, _ := a.table.Port(key)
		memory, known := a.memories[name]
		isOurs := known && memory.Port == port && !memory.Standby
		standby[name] = !isOurs && !bindable(netip.AddrPortFrom(address, uint16(port)))
	}
	return standby
}

// input is all of what a plan is made from.
func (a *Agent) input(now time.Time) (routing.Input, error) {
	files, err := a.options.Dir.Names()
	if err != nil {
		return routing.Input{}, err
	}
	settings := a.options.Routing
	settings.Region, settings.DNSSuffix, settings.KeyFile = a.region(), a.dnsSuffix(), a.options.Dir.KeyFile()
	a.certificates.SetIdentities(routing.Identities(a.table, settings))
	return routing.Input{
		Table: a.table, Place: a.place, Memories: a.memories, Files: files,
		Standby: a.standby(), Certificates: a.certificates.Certificates(), Settings: settings, Now: now,
	}, nil
}
