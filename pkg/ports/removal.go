package ports

import (
	"maps"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// countAbsences notes which targets the listing lacks. Only a conclusive listing counts, and
// only once.
func (p *planner) countAbsences() {
	fresh := p.in.Listing.Conclusive() && p.in.Listing.ReadAt.After(p.in.State.CountedAt)
	if fresh {
		p.out.State.CountedAt = p.in.Listing.ReadAt
	}
	for id, target := range p.table.Targets {
		if _, listed := p.listed[id]; listed || p.pinned(id) {
			continue
		}
		count := p.in.State.Absences[id]
		if fresh {
			count++
		}
		if count > 0 {
			p.out.State.Absences[id] = count
		}
		if fresh && target.NotFoundSince.IsZero() {
			target.NotFoundSince = p.now()
			p.table.Targets[id] = target
		}
	}
}

// removeGone lets targets go, when this very listing lacks them like those before it. One that was
// only ever pinned stays while anything is on it: the API not to find it proves nothing.
func (p *planner) removeGone() {
	if !p.in.Listing.Conclusive() {
		return
	}
	named := map[string]bool{}
	for _, v := range p.volumes {
		named[v.On.FileSystem] = named[v.On.FileSystem] || !v.Root
	}
	for _, id := range slices.Sorted(maps.Keys(p.out.State.Absences)) {
		begun := slices.Contains(p.in.Begun, id)
		unproven := p.table.Targets[id].PinnedOnly && (named[id] || begun)
		if p.out.State.Absences[id] < wellknown.MissingListings || unproven {
			continue
		}
		if !slices.Contains(p.in.Gone, id) {
			p.out.Confirm = append(p.out.Confirm, id)
			continue
		}
		p.out.Gone = append(p.out.Gone, id)
		if !named[id] {
			p.remove(id)
			delete(p.out.State.Absences, id)
		}
	}
}

// remove takes a target with all its ports out of the table.
func (p *planner) remove(id string) {
	target := p.table.Targets[id]
	for _, point := range slices.Sorted(maps.Keys(target.AccessPoints)) {
		p.retire(target.AccessPoints[point].Port)
	}
	p.retire(target.Port)
	delete(p.table.Targets, id)
}

// retire puts a port at the end of those that wait to be used again. Until the next call it
// is held.
func (p *planner) retire(port int) {
	if port == 0 {
		return
	}
	delete(p.owners, port)
	p.table.Retired = append(p.table.Retired, port)
}

// removeAccessPoints takes the ports of access points that nobody asks for any longer.
func (p *planner) removeAccessPoints() {
	if !p.in.Demand.Known {
		return
	}
	wanted := map[Key]bool{}
	for _, key := range slices.Concat(p.in.Demand.AccessPoints, p.pinnedKeys()) {
		wanted[key] = true
	}
	for _, v := range p.volumes {
		wanted[v.On] = true
	}
	for _, key := range p.table.Keys() {
		if key.AccessPoint == "" || wanted[key] {
			continue
		}
		points := p.table.Targets[key.FileSystem].AccessPoints
		p.retire(points[key.AccessPoint].Port)
		delete(points, key.AccessPoint)
	}
}

// demandedKeys are the access points that somebody asked for.
func (p *planner) demandedKeys() []Key {
	var keys []Key
	for _, key := range p.in.Demand.AccessPoints {
		if key.AccessPoint != "" && key.check() == nil {
			keys = append(keys, key)
		}
	}
	return distinct(keys)
}
