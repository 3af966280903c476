package ports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (p *planner) report(e Event, format string, args ...any) {
	e.Message = fmt.Sprintf(format, args...)
	p.events = append(p.events, e)
}

// reportChanges reports how the new table differs from the old one, and what it lacks.
func (p *planner) reportChanges() {
	for id, target := range p.table.Targets {
		old, existed := p.before.Targets[id]
		switch {
		case !target.NotFoundSince.IsZero():
			p.report(Event{Kind: Missing, FileSystem: id}, "not listed since %s; its port %d stays", target.NotFoundSince.Format(time.RFC3339), target.Port)
		case !existed:
			p.report(Event{Kind: Found, FileSystem: id}, "%s has port %d", target.Name, target.Port)
		case !old.NotFoundSince.IsZero():
			p.report(Event{Kind: Found, FileSystem: id}, "listed again, with port %d", target.Port)
		}
	}
	for id, target := range p.before.Targets {
		if _, exists := p.table.Targets[id]; !exists {
			p.report(Event{Kind: Gone, FileSystem: id}, "the file system does not exist any longer; its port %d is retired", target.Port)
		}
	}
}

// reportPins reports which pinned ports were not assigned.
func (p *planner) reportPins() {
	for _, key := range p.pinnedKeys() {
		want, _ := p.in.Pinned.Port(key)
		got, ok := p.table.Port(key)
		if !ok || want == 0 || got == want {
			continue
		}
		why := "which something else has"
		if owner, ok := p.owners[want]; ok {
			why = "which is that of " + owner.String()
		}
		p.report(Event{Kind: Conflict, FileSystem: key.FileSystem}, "%s is pinned to port %d, %s; it has %d and keeps it", key, want, why, got)
	}
}

// reportNodePorts reports the assigned ports that a Service could take, in one event: where the two
// ranges meet, there may be a thousand.
func (p *planner) reportNodePorts() {
	const most = 5
	var first Key
	var named []string
	for _, key := range p.table.Keys() {
		if port, _ := p.table.Port(key); p.in.Range.NodePorts.Contains(port) {
			first = cmp.Or(first, key)
			named = append(named, fmt.Sprintf("%s (port %d)", key, port))
		}
	}
	if len(named) == 0 {
		return
	}
	others := ""
	if len(named) > most {
		others = fmt.Sprintf(" and %d others", len(named)-most)
	}
	p.report(Event{Kind: Conflict, FileSystem: first.FileSystem}, "the NodePort range %s has the ports of %s%s: a Service with such a nodePort would get their NFS traffic "+
		"on every node. Ports that were given stay: move the cluster's NodePort range off them, and --node-port-range with it, "+
		"or let an admission policy refuse such Services", p.in.Range.NodePorts, strings.Join(named[:min(len(named), most)], ", "), others)
}

// sortEvents returns all conditions, and the events that were not reported before.
func (p *planner) sortEvents() (conditions, unreported []Event) {
	slices.SortFunc(p.events, func(a, b Event) int {
		return cmp.Or(strings.Compare(a.FileSystem, b.FileSystem), strings.Compare(string(a.Kind), string(b.Kind)),
			strings.Compare(a.Volume, b.Volume), strings.Compare(a.Message, b.Message))
	})
	for _, e := range slices.Compact(p.events) {
		if e.Kind.isCondition() {
			conditions = append(conditions, e)
		}
		if !e.Kind.isCondition() || !slices.Contains(p.in.State.Conditions, e) {
			unreported = append(unreported, e)
		}
	}
	return conditions, unreported
}
