package discovery

import (
	"fmt"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// pointAnswer is what the API said of an access point.
type pointAnswer struct {
	known bool            // it was answered once
	point efs.AccessPoint // the zero one if there is none
	err   error           // of the latest question; the rest is as it was before
}

// confirmed is the demand that gets ports: what has one keeps it, and new ones are those that EFS
// knows. Otherwise invented ids would use up the ports of the cluster.
func (o Options) confirmed(s state) ports.Demand {
	demand := s.demand
	demand.AccessPoints = slices.DeleteFunc(slices.Clone(demand.AccessPoints), func(key ports.Key) bool {
		return !s.hasPort(key) && o.pointProblem(s, key).text != ""
	})
	return demand
}

func (s state) hasPort(key ports.Key) bool {
	if s.table.table == nil {
		return false
	}
	port, ok := s.table.table.Port(key)
	return ok && port != 0
}

// questions are the access points that the API can be asked for.
func (o Options) questions(s state) []ports.Key {
	var keys []ports.Key
	for _, key := range s.demand.AccessPoints {
		if o.isListed(s, key.FileSystem) && efs.CheckAccessPointID(key.AccessPoint) == nil {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b ports.Key) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(keys)
}

// isListed says whether the API lists a file system that the cluster may use.
func (o Options) isListed(s state, id string) bool {
	return slices.ContainsFunc(s.findings.listing.FileSystems, func(fs efs.FileSystem) bool {
		return fs.ID == id && o.Filter.Match(fs)
	})
}

// problem is why nobody can use an access point now.
type problem struct {
	text     string // "" for none
	hopeless bool   // somebody has to do something
}

// pointProblem judges an access point by what the API, or the administrator, says of it. One that
// has a port is taken to be right until somebody says that it is not.
func (o Options) pointProblem(s state, key ports.Key) problem {
	answer, target := s.findings.points[key], s.pinnedTarget(key.FileSystem)
	switch {
	case target != nil && hasPoint(*target, key.AccessPoint):
		return problem{}
	case target != nil && !o.isListed(s, key.FileSystem):
		return problem{fmt.Sprintf("file system %s is pinned, and ConfigMap %s has no access point %s of it",
			key.FileSystem, wellknown.PinnedConfigMap, key.AccessPoint), true}
	case answer.known:
		return judgePoint(key, answer.point)
	case s.hasPort(key):
		return problem{}
	case answer.err != nil:
		return problem{text: fmt.Sprintf("access point %s could not be looked up: %s. %s", key.AccessPoint, apiWords(answer.err), advice(answer.err))}
	}
	return problem{text: fmt.Sprintf("access point %s is being looked up", key.AccessPoint)}
}

func judgePoint(key ports.Key, point efs.AccessPoint) problem {
	id := key.AccessPoint
	switch {
	case point.ID == "":
		return problem{fmt.Sprintf("access point %s does not exist", id), true}
	case point.FileSystemID != key.FileSystem:
		return problem{fmt.Sprintf("access point %s is one of file system %s, not of %s", id, point.FileSystemID, key.FileSystem), true}
	case point.State == efs.Creating:
		return problem{text: fmt.Sprintf("access point %s is still being created", id)}
	case point.State != efs.Available && point.State != efs.Updating:
		return problem{fmt.Sprintf("access point %s is in state %q", id, point.State), true}
	}
	return problem{}
}

// pinnedTarget is what the administrator says of a file system, nil for nothing.
func (s state) pinnedTarget(id string) *ports.Target {
	if s.pinned.table == nil {
		return nil
	}
	target, ok := s.pinned.table.Targets[id]
	if !ok {
		return nil
	}
	return &target
}

func hasPoint(target ports.Target, id string) bool {
	_, ok := target.AccessPoints[id]
	return ok
}

// tunnels are what the demand has come to.
func (v view) tunnels(s state) map[ports.Key]targets.Tunnel {
	var all map[ports.Key]targets.Tunnel // nil for none, as in a snapshot that nobody asked for
	for _, key := range slices.Concat(s.demand.AccessPoints, s.demand.IAM) {
		if all == nil {
			all = map[ports.Key]targets.Tunnel{}
		}
		all[key] = v.tunnel(s, key)
	}
	return all
}

func (v view) tunnel(s state, key ports.Key) targets.Tunnel {
	t := targets.Tunnel{IAM: v.table.Targets[key.FileSystem].IAM}
	t.Port, _ = v.table.Port(key)
	if key.AccessPoint == "" {
		return t
	}
	t.IAM = v.table.Targets[key.FileSystem].AccessPoints[key.AccessPoint].IAM
	p := v.options.pointProblem(s, key)
	t.Problem, t.Terminal = p.text, p.hopeless
	return t
}

func countPoints(tunnels map[ports.Key]targets.Tunnel) map[string]int {
	counts := map[string]int{usable: 0, unusable: 0, waiting: 0}
	for key, t := range tunnels {
		switch {
		case key.AccessPoint == "":
		case t.Terminal:
			counts[unusable]++
		case t.Problem != "" || t.Port == 0:
			counts[waiting]++
		default:
			counts[usable]++
		}
	}
	return counts
}
