package ports

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// rebuild assigns to the keys that the table lacks the ports that their volumes have. Where volumes
// disagree, most of the claims' volumes decide, then most of all, then the order of keys and
// ports; the others are corrected.
func (p *planner) rebuild() {
	type candidate struct {
		key  Key
		port int
	}
	volumes, ofClaims := map[candidate]int{}, map[candidate]int{}
	for _, v := range p.requiringVolumes() {
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

// requiringVolumes are the volumes whose file system must be in the table. A root volume is removed
// with its target, so one that still exists restores the target only after the table was lost.
func (p *planner) requiringVolumes() []Volume {
	var requiring []Volume
	for _, v := range p.volumes {
		if (!v.Root || p.in.Table == nil) && p.isValid(v.On) {
			requiring = append(requiring, v)
		}
	}
	return requiring
}

// requiredKeys are what those volumes are on, each file system before its access points.
func (p *planner) requiredKeys() []Key {
	var keys []Key
	for _, v := range p.requiringVolumes() {
		keys = append(keys, Key{FileSystem: v.On.FileSystem}, v.On)
	}
	return valid(keys)
}

// isValid checks each key once: thousands of volumes have the same.
func (p *planner) isValid(key Key) bool {
	ok, known := p.checked[key]
	if !known {
		ok = key.check() == nil
		p.checked[key] = ok
	}
	return ok
}

func compareVolumes(a, b Volume) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), compareKeys(a.On, b.On), cmp.Compare(a.Port, b.Port))
}
