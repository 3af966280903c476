package ports

import "gnuthought.com/efs-stunnel/pkg/api/wellknown"

// MaxTableBytes is how long newcomers may make the encoded table. The apiserver takes 1 MiB of
// data in a ConfigMap; the rest is for what targets of the table still need: not_found_since, new
// mount targets, and targets that volumes bring back.
const MaxTableBytes = 900 << 10

// reserveBytes reports whether the table stays below its limit with a newcomer, and then counts
// the newcomer in.
func (p *planner) reserveBytes(key Key) bool {
	if p.bytes == 0 {
		table := p.table
		table.Targets = p.described()
		p.bytes = len(Encode(table))
	}
	target, exists := p.table.Targets[key.FileSystem]
	grown := p.bytes + p.encodedBytes(key.FileSystem, target.withPort(key.AccessPoint, wellknown.MaxPort))
	if exists {
		grown -= p.encodedBytes(key.FileSystem, target)
	}
	if grown > MaxTableBytes {
		return false
	}
	p.bytes = grown
	return true
}

// encodedBytes is the length of a target in the encoded table.
func (p *planner) encodedBytes(id string, t Target) int {
	return len(Encode(Table{Targets: map[string]Target{id: p.describe(id, t)}})) - len(keyTargets+":\n")
}
