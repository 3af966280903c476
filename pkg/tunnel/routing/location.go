package routing

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Location is the region, zone and subnets of a node. Each may be unknown.
type Location struct {
	Region  string   `json:"region,omitempty"`
	Zone    string   `json:"zone,omitempty"`
	Subnets []string `json:"subnets,omitempty"` // of the primary network interface first
}

// Known reports whether zone or subnet is known, by which distances are computed.
func (l Location) Known() bool { return l.Zone != "" || len(l.Subnets) > 0 }

// MountTarget is one address of a file system.
type MountTarget struct {
	Address  netip.Addr
	Zone     string // "" when unknown
	Distance Distance
}

// Distance is how far a mount target is from the node, in steps of latency and cost.
type Distance int

// Distances, the nearest first.
const (
	SameSubnet Distance = iota
	SameZone
	OtherZone // or an unknown one
)

// byDistance returns the mount targets of a file system, nearest first. The order among those of
// equal distance depends on nothing but zone and address, so it is the same in each plan.
func byDistance(target ports.Target, location Location) []MountTarget {
	zones := zonesByAddress(target)
	distances := map[netip.Addr]Distance{}
	for address, zone := range zones {
		distances[address] = OtherZone
		if location.Zone != "" && zone == location.Zone {
			distances[address] = SameZone
		}
	}
	for _, subnet := range location.Subnets {
		if address, ok := target.AddressBySubnet[subnet]; ok {
			distances[address.Unmap()] = SameSubnet
		}
	}
	addresses := slices.SortedFunc(maps.Keys(zones), func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(distances[a], distances[b]), cmp.Compare(zones[a], zones[b]), a.Compare(b))
	})
	var targets []MountTarget
	for _, address := range addresses {
		targets = append(targets, MountTarget{address, zones[address], distances[address]})
	}
	return targets
}

// zonesByAddress returns the zone of each usable address.
func zonesByAddress(target ports.Target) map[netip.Addr]string {
	zones := map[netip.Addr]string{}
	for _, address := range target.AddressBySubnet {
		if usable(address) {
			zones[address.Unmap()] = target.AvailabilityZone
		}
	}
	for _, zone := range slices.Sorted(maps.Keys(target.AddressByZone)) {
		if address := target.AddressByZone[zone]; usable(address) {
			zones[address.Unmap()] = zone
		}
	}
	return zones
}

// usable excludes addresses that no mount target has: unspecified, multicast, broadcast, and
// link-local ones, at which the instance metadata service hands out credentials.
func usable(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsValid() && !address.IsUnspecified() && !address.IsMulticast() &&
		!address.IsLinkLocalUnicast() && address != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
