package ports

import (
	"maps"
	"time"
)

// pinned says whether the administrator has a say in the file system.
func (p *planner) pinned(id string) bool {
	_, ok := p.in.Pinned.Targets[id]
	return ok
}

// pinnedKeys are the administrator's, without those that could never be in a table.
func (p *planner) pinnedKeys() []Key {
	var keys []Key
	for _, key := range p.in.Pinned.Keys() {
		if key.check() == nil {
			keys = append(keys, key)
		}
	}
	return keys
}

// pinPorts grants the ports that the administrator chose. A port that was given before stays
// where it is; the others get one like everybody, and givePorts does that.
func (p *planner) pinPorts() {
	for _, key := range p.pinnedKeys() {
		port, _ := p.in.Pinned.Port(key)
		if port != 0 && !p.has(key) && p.grantable(key, port) && p.takeRoom(key) {
			p.give(key, port)
		}
	}
}

// grantable says whether a chosen port is nobody's. The volumes that name it may be the key's
// own, or an administrator's that say nothing of file systems.
func (p *planner) grantable(key Key, port int) bool {
	_, taken := p.owners[port]
	if taken || !p.in.Range.allows(port) {
		return false
	}
	for _, v := range p.volumes {
		if v.Port == port && v.On != key && v.On.FileSystem != "" {
			return false
		}
	}
	return true
}

// reportPins tells which chosen ports were not granted.
func (p *planner) reportPins() {
	for _, key := range p.pinnedKeys() {
		want, _ := p.in.Pinned.Port(key)
		got, ok := p.table.Port(key)
		if ok && want != 0 && got != want {
			p.tell(News{Kind: Conflict, FileSystem: key.FileSystem,
				Message: pinRefused(key, want, got, p.owners)})
		}
	}
}

// merge puts what is pinned over what is known. Where the listing has the file system, its
// other addresses stay for failover; where it does not, the administrator's are all there are.
func (t Target) merge(pin Target, listed bool) Target {
	if pin.Name != "" {
		t.Name = pin.Name
	}
	if pin.DNSName != "" {
		t.DNSName = pin.DNSName
	}
	if pin.AvailabilityZone != "" {
		t.AvailabilityZone = pin.AvailabilityZone
	}
	if !listed && len(pin.AddressBySubnet)+len(pin.AddressByZone) > 0 {
		t.AddressBySubnet, t.AddressByZone = nil, nil
	}
	t.AddressBySubnet = over(t.AddressBySubnet, pin.AddressBySubnet)
	t.AddressByZone = over(t.AddressByZone, pin.AddressByZone)
	t.IAM = t.IAM || pin.IAM
	t.NotFoundSince = time.Time{}
	t.Unknown = over(t.Unknown, pin.Unknown)
	for id, pinnedPoint := range pin.AccessPoints {
		if point, ok := t.AccessPoints[id]; ok {
			point.IAM = point.IAM || pinnedPoint.IAM
			point.Unknown = over(point.Unknown, pinnedPoint.Unknown)
			t.AccessPoints[id] = point
		}
	}
	return t
}

// over returns a map with both, the second one's values where they meet.
func over[V any](below, above map[string]V) map[string]V {
	if len(above) == 0 {
		return below
	}
	merged := maps.Clone(below)
	if merged == nil {
		merged = map[string]V{}
	}
	maps.Copy(merged, above)
	return merged
}
