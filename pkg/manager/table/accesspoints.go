package table

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/awserrors"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
)

// confirmed is the demand that gets ports: access points that have a port, and those that EFS has
// confirmed. Otherwise invented ids would use up the ports of the cluster.
func (o Options) confirmed(s state) ports.Demand {
	demand := s.demand
	demand.AccessPoints = slices.DeleteFunc(slices.Clone(demand.AccessPoints), func(key ports.Key) bool {
		problem, _ := o.pointProblem(s, key)
		return !s.hasPort(key) && problem != ""
	})
	demand.AccessPoints = append(demand.AccessPoints, s.made.AccessPoints...)
	demand.IAM = slices.Concat(demand.IAM, s.made.IAM, iamOf(s.volumes))
	return demand
}

func iamOf(objects []*corev1.PersistentVolume) (keys []ports.Key) {
	for _, object := range objects {
		if object.Annotations[wellknown.AnnotationIAM] != wellknown.ValueTrue {
			continue
		}
		if key := ports.VolumeOf(object).On; key.AccessPoint != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s state) hasPort(key ports.Key) bool {
	if s.table.table == nil {
		return false
	}
	port, ok := s.table.table.Port(key)
	return ok && port != 0
}

// demandedPoints are the access points that the API can describe.
func (o Options) demandedPoints(s state) []ports.Key {
	return slices.DeleteFunc(slices.Clone(s.demand.AccessPoints), func(key ports.Key) bool {
		return !o.isListed(s, key.FileSystem) || efs.CheckAccessPointID(key.AccessPoint) != nil
	})
}

// isListed says whether the API lists a file system that the cluster may use.
func (o Options) isListed(s state, id string) bool {
	return slices.ContainsFunc(s.inventory.listing.FileSystems, func(fs efs.FileSystem) bool {
		return fs.ID == id && o.Filter.Match(fs)
	})
}

// pointProblem says why an access point cannot be used now, or "". Only an edit ends a terminal problem.
// An access point that has a port is usable unless the API or the pinned table says otherwise.
func (o Options) pointProblem(s state, key ports.Key) (problem string, terminal bool) {
	answer := s.inventory.points[key]
	target, pinned := s.pinned.targets()[key.FileSystem]
	_, pointPinned := target.AccessPoints[key.AccessPoint]
	switch {
	case pointPinned:
		return "", false
	case pinned && !o.isListed(s, key.FileSystem):
		return fmt.Sprintf("file system %s is pinned, and ConfigMap %s has no access point %s of it",
			key.FileSystem, wellknown.PinnedConfigMap, key.AccessPoint), true
	case answer.known:
		return describedProblem(key, answer.point)
	case s.hasPort(key):
		return "", false
	case answer.err != nil:
		return fmt.Sprintf("access point %s could not be looked up: %s. %s", key.AccessPoint, awserrors.Message(answer.err), awserrors.Advice(answer.err)), false
	}
	return fmt.Sprintf("access point %s is being looked up", key.AccessPoint), false
}

// describedProblem is that of an access point as the API describes it.
func describedProblem(key ports.Key, point efs.AccessPoint) (problem string, terminal bool) {
	id := key.AccessPoint
	switch {
	case point.ID == "":
		return fmt.Sprintf("access point %s does not exist", id), true
	case point.FileSystemID != key.FileSystem:
		return fmt.Sprintf("access point %s is one of file system %s, not of %s", id, point.FileSystemID, key.FileSystem), true
	case point.State == efs.Creating:
		return fmt.Sprintf("access point %s is still being created", id), false
	case point.State != efs.Available && point.State != efs.Updating:
		return fmt.Sprintf("access point %s is in state %q", id, point.State), true
	}
	return "", false
}

// tunnels are those of the demand.
func (v view) tunnels() map[ports.Key]targets.Tunnel {
	all := map[ports.Key]targets.Tunnel{}
	for _, key := range slices.Concat(v.demand.AccessPoints, v.demand.IAM) {
		target := v.table.Targets[key.FileSystem]
		t := targets.Tunnel{IAM: target.IAM}
		t.Port, _ = v.table.Port(key)
		if key.AccessPoint != "" {
			t.IAM = target.AccessPoints[key.AccessPoint].IAM
			t.Problem, t.Terminal = v.pointProblem(v.state, key)
		}
		all[key] = t
	}
	refused := v.refused()
	for _, key := range v.made.AccessPoints {
		t := targets.Tunnel{}
		if t.Port, _ = v.table.Port(key); t.Port == 0 {
			t.Problem = refused[key]
		}
		all[key] = t
	}
	return all
}

// refused returns why a table that was planned has no port for some keys.
func (s state) refused() map[ports.Key]string {
	why := map[ports.Key]string{}
	for _, e := range s.onPorts {
		if e.Reason == wellknown.EventOutOfPorts || e.Reason == wellknown.EventTableFull {
			why[ports.Key{FileSystem: e.FileSystem, AccessPoint: e.AccessPoint}] = e.Message
		}
	}
	return why
}

func countPoints(tunnels map[ports.Key]targets.Tunnel) map[string]float64 {
	counts := map[string]float64{usable: 0, unusable: 0, waiting: 0}
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
