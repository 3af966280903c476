package ports

import (
	"cmp"
	"slices"
	"strings"
)

// candidate is a port that volumes remember as a key's.
type candidate struct {
	key    Key
	port   int
	claims int // volumes of claims that say so: pods may have them mounted
	roots  int
}

// rebuild gives the keys that the table lacks the ports that their volumes name. Where volumes
// disagree, most of the claims' volumes decide, then most of all, then the order of keys and
// ports; the others are corrected.
func (p *planner) rebuild() {
	for _, c := range p.candidates() {
		if _, taken := p.owners[c.port]; !taken && !p.has(c.key) && p.in.Range.allows(c.port) {
			p.give(c.key, c.port)
		}
	}
}

// candidates are in the order in which they win.
func (p *planner) candidates() []candidate {
	type claim struct {
		key  Key
		port int
	}
	votes := map[claim]*candidate{}
	for _, v := range p.naming() {
		if v.Port == 0 || p.has(v.On) {
			continue
		}
		c := votes[claim{v.On, v.Port}]
		if c == nil {
			c = &candidate{key: v.On, port: v.Port}
			votes[claim{v.On, v.Port}] = c
		}
		if v.Root {
			c.roots++
		} else {
			c.claims++
		}
	}
	var all []candidate
	for _, c := range votes {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.claims, a.claims), cmp.Compare(b.roots, a.roots),
			compareKeys(a.key, b.key), cmp.Compare(a.port, b.port))
	})
	return all
}

// naming are the volumes whose file system must be in the table. A root volume goes with its
// target, so one that is still there brings the target back only after a lost table.
func (p *planner) naming() []Volume {
	var naming []Volume
	for _, v := range p.volumes {
		if (!v.Root || p.in.Table == nil) && v.On.check() == nil {
			naming = append(naming, v)
		}
	}
	return naming
}

// namedKeys are what those volumes are on, each file system before its access points.
func (p *planner) namedKeys() []Key {
	var keys []Key
	for _, v := range p.naming() {
		keys = append(keys, Key{FileSystem: v.On.FileSystem}, v.On)
	}
	return distinct(keys)
}

func distinct(keys []Key) []Key {
	slices.SortFunc(keys, compareKeys)
	return slices.Compact(keys)
}

func compareVolumes(a, b Volume) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), compareKeys(a.On, b.On), cmp.Compare(a.Port, b.Port))
}
