package ports

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
)

// countAbsences counts how often listings lacked a target. Only a conclusive listing counts, and only once.
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

// removeGone removes the targets that this listing and enough before it lack, and that the caller
// confirmed as gone. One that was only ever pinned stays while it is in use: it may be another
// account's, whose file systems the API never finds.
func (p *planner) removeGone() {
	if !p.in.Listing.Conclusive() {
		return
	}
	hasVolumes := map[string]bool{} // root volumes are removed with the target
	for _, v := range p.volumes {
		hasVolumes[v.On.FileSystem] = hasVolumes[v.On.FileSystem] || !v.Root
	}
	for _, id := range slices.Sorted(maps.Keys(p.out.State.Absences)) {
		used := hasVolumes[id] || slices.Contains(p.in.Begun, id)
		if p.out.State.Absences[id] < wellknown.MissingListings || p.table.Targets[id].PinnedOnly && used {
			continue
		}
		if !slices.Contains(p.in.Gone, id) {
			p.out.Confirm = append(p.out.Confirm, id)
			continue
		}
		p.out.Gone = append(p.out.Gone, id)
		if !hasVolumes[id] {
			p.remove(id)
			delete(p.out.State.Absences, id)
		}
	}
}

// remove removes a target from the table and retires all its ports.
func (p *planner) remove(id string) {
	target := p.table.Targets[id]
	for _, point := range slices.Sorted(maps.Keys(target.AccessPoints)) {
		p.retire(target.AccessPoints[point].Port)
	}
	p.retire(target.Port)
	delete(p.table.Targets, id)
}

// retire makes a port the last one to be given again, and not in this call.
func (p *planner) retire(port int) {
	if port == 0 {
		return
	}
	delete(p.owners, port)
	p.table.Retired = append(p.table.Retired, port)
}

// removeAccessPoints removes access points for which there are no claims, volumes or pins any longer.
func (p *planner) removeAccessPoints() {
	if !p.in.Demand.Known {
		return
	}
	wanted := sets.New(slices.Concat(p.in.Demand.AccessPoints, p.pinnedKeys())...)
	for _, v := range p.volumes {
		wanted.Insert(v.On)
	}
	for _, key := range p.table.Keys() {
		if key.AccessPoint == "" || wanted.Has(key) {
			continue
		}
		points := p.table.Targets[key.FileSystem].AccessPoints
		p.retire(points[key.AccessPoint].Port)
		delete(points, key.AccessPoint)
	}
}
