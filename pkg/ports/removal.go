package ports

import (
	"cmp"
	"fmt"
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

// rebuild assigns to the keys that the table lacks the ports that their volumes have. Where volumes
// disagree, most of the claims' volumes decide, then most of all, then the order of keys and
// ports; the others are corrected.
func (p *planner) rebuild() {
	type candidate struct {
		key  Key
		port int
	}
	volumes, ofClaims := map[candidate]int{}, map[candidate]int{}
	for _, v := range p.requiring {
		if v.Port == 0 || p.has(v.On) {
			continue
		}
		volumes[candidate{v.On, v.Port}]++
		if !v.Root { // pods may have it mounted
			ofClaims[candidate{v.On, v.Port}]++
		}
	}
	candidates := slices.SortedFunc(maps.Keys(volumes), func(a, b candidate) int {
		return cmp.Or(cmp.Compare(ofClaims[b], ofClaims[a]), cmp.Compare(volumes[b], volumes[a]),
			compareKeys(a.key, b.key), cmp.Compare(a.port, b.port))
	})
	for _, c := range candidates {
		if _, taken := p.owners[c.port]; !taken && !p.has(c.key) && p.in.Range.allows(c.port) {
			p.assign(c.key, c.port)
		}
	}
}

// requiring returns the volumes whose file system must be in the table. A root volume is removed with its target, so
// one that still exists restores the target only after the table was lost.
func requiring(volumes []Volume, isLost bool) (all []Volume) {
	valid := map[Key]bool{} // thousands of volumes have the same
	for _, v := range volumes {
		if _, checked := valid[v.On]; !checked {
			valid[v.On] = v.On.check() == nil
		}
		if valid[v.On] && (!v.Root || isLost) {
			all = append(all, v)
		}
	}
	return all
}

// requiredKeys are what those volumes are on, each file system before its access points.
func (p *planner) requiredKeys() []Key {
	var keys []Key
	for _, v := range p.requiring {
		keys = append(keys, Key{FileSystem: v.On.FileSystem}, v.On)
	}
	return valid(keys)
}

// correctVolumes compares every volume's port with the table. The annotation says which file system the
// volume is on; the port option follows, for pods would be on another file system otherwise.
func (p *planner) correctVolumes() {
	for _, v := range p.volumes {
		if v.On.FileSystem == "" || v.Foreign {
			continue // not ours: the other installation has a table of its own
		}
		want, ok := p.table.Port(v.On)
		if !ok {
			p.reportUncorrectable(v)
			continue
		}
		if v.Port != want {
			p.out.Corrections = append(p.out.Corrections, Correction{
				Volume: v.Name, On: v.On, From: v.Port, To: want,
				Reason: p.correctionReason(v, want),
			})
			if p.in.Range.allows(v.Port) {
				p.table.Retired = append(p.table.Retired, v.Port) // pods use it as long as they run
			}
		}
	}
}

func (p *planner) correctionReason(v Volume, want int) string {
	is := fmt.Sprintf("the port of %s is %d", v.On, want)
	if v.Port == 0 {
		return "the volume has no port; " + is
	}
	if owner, ok := p.owners[v.Port]; ok {
		return fmt.Sprintf("%s, and %d is that of %s", is, v.Port, owner)
	}
	return fmt.Sprintf("%s, and %d has no tunnel", is, v.Port)
}

func (p *planner) reportUncorrectable(v Volume) {
	if err := v.On.check(); err != nil {
		p.report(Event{Reason: wellknown.EventPortConflict, Volume: v.Name},
			"the volume's annotation is wrong: %v", err)
	} else if owner, ok := p.owners[v.Port]; ok {
		p.report(Event{Reason: wellknown.EventPortConflict, FileSystem: v.On.FileSystem, Volume: v.Name},
			"the volume's port %d is that of %s, and %s has none: pods must not use it", v.Port, owner, v.On)
	}
}
