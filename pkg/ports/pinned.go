package ports

import (
	"cmp"
	"maps"
	"time"
)

// pinned reports whether the file system is in the administrator's table.
func (p *planner) pinned(id string) bool {
	_, ok := p.in.Pinned.Targets[id]
	return ok
}

func (p *planner) pinnedKeys() []Key { return valid(p.in.Pinned.Keys()) }

// assignPinned assigns the ports that the administrator chose. A port that was assigned before does
// not move; targets whose port cannot be had get another one from assignPorts.
func (p *planner) assignPinned() {
	for _, key := range p.pinnedKeys() {
		port, _ := p.in.Pinned.Port(key)
		if port != 0 && !p.has(key) && p.canPin(key, port) && p.reserveBytes(key) {
			p.assign(key, port)
		}
	}
}

// canPin reports whether a chosen port belongs to no other key. The volumes that have it may be the
// key's own, or static ones of the administrator without a file system.
func (p *planner) canPin(key Key, port int) bool {
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

// merge puts what is pinned over what is known, except for access points. Where the listing has the file system, its
// other addresses stay for failover; where it does not, only the administrator's count.
func (t Target) merge(pin Target, listed bool) Target {
	t.Name = cmp.Or(pin.Name, t.Name)
	t.DNSName = cmp.Or(pin.DNSName, t.DNSName)
	t.AvailabilityZone = cmp.Or(pin.AvailabilityZone, t.AvailabilityZone)
	if !listed && pin.HasAddress() {
		t.AddressBySubnet, t.AddressByZone, t.IPv6BySubnet, t.IPv6ByZone = nil, nil, nil, nil
	}
	t.AddressBySubnet = over(t.AddressBySubnet, pin.AddressBySubnet)
	t.AddressByZone = over(t.AddressByZone, pin.AddressByZone)
	t.IPv6BySubnet = over(t.IPv6BySubnet, pin.IPv6BySubnet)
	t.IPv6ByZone = over(t.IPv6ByZone, pin.IPv6ByZone)
	t.IAM = t.IAM || pin.IAM
	t.NotFoundSince = time.Time{}
	t.Unknown = over(t.Unknown, pin.Unknown)
	return t
}

// over returns a map with the entries of both, of the second one where they share a key.
func over[V any](below, above map[string]V) map[string]V {
	if len(above) == 0 {
		return below
	}
	merged := make(map[string]V, len(below)+len(above))
	maps.Copy(merged, below)
	maps.Copy(merged, above)
	return merged
}
