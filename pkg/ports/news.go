package ports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

func (p *planner) tell(n News) { p.news = append(p.news, n) }

// reportChanges tells how the new table differs from the old one, and what is missing in it.
func (p *planner) reportChanges() {
	p.reportPins()
	p.reportNodePorts()
	before := p.before()
	for id, target := range p.table.Targets {
		old, there := before.Targets[id]
		switch {
		case !target.NotFoundSince.IsZero():
			p.tell(News{Kind: Missing, FileSystem: id, Message: fmt.Sprintf(
				"not listed since %s; its port %d stays", target.NotFoundSince.Format(time.RFC3339), target.Port)})
		case !there:
			p.tell(News{Kind: Found, FileSystem: id, Message: fmt.Sprintf("%s has port %d", target.Name, target.Port)})
		case !old.NotFoundSince.IsZero():
			p.tell(News{Kind: Found, FileSystem: id, Message: fmt.Sprintf("listed again, with port %d", target.Port)})
		}
	}
	for id, target := range before.Targets {
		if _, there := p.table.Targets[id]; !there {
			p.tell(News{Kind: Gone, FileSystem: id, Message: fmt.Sprintf(
				"the file system does not exist any longer; its port %d is retired", target.Port)})
		}
	}
}

// reportNodePorts tells which given ports a Service could take. They are one piece of news: where
// the two ranges meet, there may be a thousand.
func (p *planner) reportNodePorts() {
	var keys []Key
	for _, key := range p.table.Keys() {
		if port, _ := p.table.Port(key); p.in.Range.NodePorts.Contains(port) {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		p.tell(News{Kind: Conflict, FileSystem: keys[0].FileSystem, Message: amongNodePorts(p.table, keys, p.in.Range.NodePorts)})
	}
}

// sortNews parts the news into what stands now and what was not told before.
func (p *planner) sortNews() (standing, untold []News) {
	slices.SortFunc(p.news, compareNews)
	for _, n := range slices.Compact(p.news) {
		if n.Kind.stands() {
			standing = append(standing, n)
		}
		if !n.Kind.stands() || !slices.Contains(p.in.State.Standing, n) {
			untold = append(untold, n)
		}
	}
	return standing, untold
}

func compareNews(a, b News) int {
	return cmp.Or(strings.Compare(a.FileSystem, b.FileSystem), strings.Compare(string(a.Kind), string(b.Kind)),
		strings.Compare(a.Volume, b.Volume), strings.Compare(a.Message, b.Message))
}

func outOfPorts(key Key, r Range) string {
	return fmt.Sprintf("no port is left for %s among %d to %d: widen --stunnel-port-count",
		key, r.Base, r.Base+r.Count-1)
}

func tableFull(key Key) string {
	return fmt.Sprintf("no port for %s: the table would outgrow %d KiB, and ConfigMap %s holds at most 1 MiB: "+
		"restrict discovery with --file-system-ids or --file-system-tags, or delete file systems that are not used",
		key, MaxTableBytes>>10, wellknown.TargetsConfigMap)
}

func pinRefused(key Key, want, got int, owners map[int]Key) string {
	why := "which something else has"
	if owner, ok := owners[want]; ok {
		why = "which is that of " + owner.String()
	}
	return fmt.Sprintf("%s is pinned to port %d, %s; it has %d and keeps it", key, want, why, got)
}

func amongNodePorts(table Table, keys []Key, nodePorts Span) string {
	const most = 5
	var named []string
	for _, key := range keys[:min(len(keys), most)] {
		port, _ := table.Port(key)
		named = append(named, fmt.Sprintf("%s (port %d)", key, port))
	}
	others := ""
	if len(keys) > most {
		others = fmt.Sprintf(" and %d others", len(keys)-most)
	}
	return fmt.Sprintf("the NodePort range %s has the ports of %s%s: a Service with such a nodePort would get their NFS traffic "+
		"on every node. Ports that were given stay: move the cluster's NodePort range off them, and --node-port-range with it, "+
		"or let an admission policy refuse such Services", nodePorts, strings.Join(named, ", "), others)
}
