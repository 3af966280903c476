package ports

import (
	"fmt"
	"maps"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// MaxTableBytes is how long newcomers may make the encoded table. The apiserver takes 1 MiB of
// data in a ConfigMap; the rest is for what targets of the table still need: marks, new mount
// targets, and targets that volumes bring back.
const MaxTableBytes = 900 << 10

// takeRoom says whether the table has room for a newcomer, and counts it in.
func (p *planner) takeRoom(key Key) bool {
	if p.bytes == 0 {
		table := p.table
		table.Targets = maps.Clone(p.table.Targets)
		for id, target := range table.Targets {
			table.Targets[id] = p.described(id, target)
		}
		p.bytes = mostBytes(table.fields(), 0)
	}
	grown := p.bytes + p.bytesOf(key)
	if grown > MaxTableBytes {
		return false
	}
	p.bytes = grown
	return true
}

// bytesOf is what a key adds to the encoded table.
func (p *planner) bytesOf(key Key) int {
	target, there := p.table.Targets[key.FileSystem]
	before := 0
	if there {
		before = p.bytesOfTarget(key.FileSystem, target)
	}
	target = target.clone()
	if key.AccessPoint == "" {
		target.Port = wellknown.MaxPort
	} else {
		target.AccessPoints = withPort(target.AccessPoints, key.AccessPoint, wellknown.MaxPort)
	}
	return p.bytesOfTarget(key.FileSystem, target) - before
}

func (p *planner) bytesOfTarget(id string, t Target) int {
	return mostBytes(map[string]any{id: p.described(id, t).fields()}, 1)
}

// mostBytes is at least as much as a value needs when it is encoded. Encoding a whole table takes
// too long for each call of a table that is full.
func mostBytes(value any, depth int) int {
	bytes := 0
	switch v := value.(type) {
	case map[string]any:
		for key, item := range v {
			bytes += 2*depth + mostBytes(key, 0) + len(":") + mostBytes(item, depth+1)
		}
	case []any:
		for _, item := range v {
			bytes += 2*depth + len("-") + mostBytes(item, depth+1)
		}
	case string:
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune("\"'\\", r) }) {
			bytes = len(`\u0000`) * len(v)
		}
		bytes = max(bytes, len(v)) + len(`""`)
	case nil:
		bytes = len("null")
	default:
		bytes = len(fmt.Sprint(v))
	}
	return bytes + len(" {}\n")
}
