package ports

import (
	"maps"
	"slices"
)

// identify says which tunnels show who they are. What is not known to be unasked for stays as
// it is: a tunnel that loses its identity cuts off those who need it.
func (p *planner) identify(id string, target *Target) {
	target.IAM = p.identifies(Key{FileSystem: id}, target.IAM)
	target.AccessPoints = maps.Clone(target.AccessPoints)
	for point, is := range target.AccessPoints {
		is.IAM = p.identifies(Key{FileSystem: id, AccessPoint: point}, is.IAM)
		target.AccessPoints[point] = is
	}
}

func (p *planner) identifies(key Key, before bool) bool {
	asked := slices.Contains(p.in.Demand.IAM, key)
	return asked || before && !p.in.Demand.Known
}
