package dashboard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/v1alpha1"
	"gnuthought.com/efs-stunnel/pkg/plugin/inspect"
)

// number is one of those at the top of the page.
type number struct {
	Value, Of, Note string
	Bad             bool // what the note says
}

const tunnelResource = v1alpha1.NodeTunnelsResource + "." + v1alpha1.GroupName

func newNumbers(s *inspect.Snapshot, status inspect.Status, claims int) []number {
	usable := slices.DeleteFunc(slices.Clone(status.FileSystems), func(fs inspect.FileSystem) bool { return fs.State != "ok" })
	ready := slices.DeleteFunc(slices.Clone(status.Agents), func(a inspect.Agent) bool { return !a.Ready })
	var inUse, failing, total int
	for _, node := range s.NodeTunnels {
		inUse, failing, total = inUse+node.Status.InUse, failing+node.Status.Failing, total+node.Status.Total
	}
	tunnelNote := fmt.Sprintf("of %d; %d failing", total, failing)
	if s.Undefined {
		tunnelNote = "not known: the definitions are missing"
	}
	count := func(good int, of, note string, bad int, resources ...string) number {
		return number{status.Known(strconv.Itoa(good), resources...), of, note, bad > 0}
	}
	waiting, unusable, missing := len(status.Claims), len(status.FileSystems)-len(usable), len(status.Agents)-len(ready)
	return []number{
		count(claims-waiting, "claims served", fmt.Sprintf("%d waiting", waiting), waiting, "persistentvolumeclaims"),
		count(len(usable), "file systems usable", fmt.Sprintf("of %d", len(status.FileSystems)), unusable, "configmaps"),
		count(len(ready), "nodes ready", fmt.Sprintf("of %d", len(status.Agents)), missing, "daemonsets.apps", "pods", "nodes"),
		count(inUse, "tunnels in use", tunnelNote, failing, tunnelResource),
	}
}

// path is a node with the way of its volumes to mount targets.
type path struct {
	inspect.Agent

	Zone  string
	Lanes []lane
	Idle  int // tunnels without clients and without problems
}

// lane is a tunnel to a mount target.
type lane struct {
	v1alpha1.Tunnel

	Zone  string // of the mount target
	Class string // its color
}

// newPaths returns those of all nodes, the ones with problems first.
func newPaths(s *inspect.Snapshot, status inspect.Status) (paths []path) {
	zones, nodes, tunnels := map[string]string{}, map[string]string{}, map[string]v1alpha1.NodeTunnelsStatus{}
	for _, fs := range status.FileSystems {
		for zone, addresses := range fs.MountTargets {
			for address := range strings.SplitSeq(addresses, ", ") {
				zones[address] = zone
			}
		}
	}
	for _, node := range s.Nodes {
		nodes[node.Name] = node.Labels[corev1.LabelTopologyZone]
	}
	for _, object := range s.NodeTunnels {
		tunnels[object.Name] = object.Status
	}
	agents := slices.SortedStableFunc(slices.Values(status.Agents), func(a, b inspect.Agent) int { return health(a) - health(b) })
	for _, agent := range agents {
		known := tunnels[agent.Node]
		p := path{Agent: agent, Zone: nodes[agent.Node], Idle: known.Total - len(known.Tunnels)}
		for _, tunnel := range known.Tunnels {
			l := lane{Tunnel: tunnel, Zone: zones[tunnel.MountTarget], Class: "good"}
			switch {
			case len(tunnel.Problems) > 0:
				l.Class = "bad"
			case !agent.Ready:
				l.Class = "soft" // what it has reported may be over
			case p.Zone != "" && strings.HasPrefix(l.Zone, p.Zone[:len(p.Zone)-1]) && l.Zone != p.Zone:
				l.Class = "warn" // another zone's
			}
			p.Lanes = append(p.Lanes, l)
		}
		paths = append(paths, p)
	}
	return paths
}
