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
	NoRoute   // the node has no route to addresses of this family
)

// Routes are the families of addresses to which a node has no route; the zero value is a node with both.
// They are known for nodes that have only one of them, and only if the table has both.
type Routes struct{ NoIPv4, NoIPv6 bool }

// String is a word for logs.
func (r Routes) String() string {
	switch {
	case r.NoIPv4:
		return "NoRouteForIPv4"
	case r.NoIPv6:
		return "NoRouteForIPv6"
	}
	return "NoPreference"
}

func (r Routes) to(address netip.Addr) bool {
	return address.Is4() && !r.NoIPv4 || address.Is6() && !r.NoIPv6
}

// byDistance returns the mount targets of a file system, nearest first. The order among those of
// equal distance depends on nothing but zone and address, so it is the same in each plan. A mount target
// with two addresses counts as two, of which the IPv4 one is first, because it always was.
func byDistance(target ports.Target, location Location, routes Routes) []MountTarget {
	zones := zonesByAddress(target)
	distances := map[netip.Addr]Distance{}
	for address, zone := range zones {
		distances[address] = OtherZone
		if location.Zone != "" && zone == location.Zone {
			distances[address] = SameZone
		}
	}
	for _, subnet := range location.Subnets {
		for _, bySubnet := range []map[string]netip.Addr{target.AddressBySubnet, target.IPv6BySubnet} {
			if address, ok := bySubnet[subnet]; ok {
				distances[address.Unmap()] = SameSubnet
			}
		}
	}
	for address := range zones {
		if !routes.to(address) {
			distances[address] = NoRoute
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
	for _, bySubnet := range []map[string]netip.Addr{target.AddressBySubnet, target.IPv6BySubnet} {
		for _, address := range bySubnet {
			if usable(address) {
				zones[address.Unmap()] = target.AvailabilityZone
			}
		}
	}
	for _, byZone := range []map[string]netip.Addr{target.AddressByZone, target.IPv6ByZone} {
		for _, zone := range slices.Sorted(maps.Keys(byZone)) {
			if address := byZone[zone]; usable(address) {
				zones[address.Unmap()] = zone
			}
		}
	}
	return zones
}

// Addresses returns the usable addresses of all targets of a table, by family.
func Addresses(table ports.Table) (ipv4, ipv6 []netip.Addr) {
	for _, target := range table.Targets {
		for address := range zonesByAddress(target) {
			if address.Is4() {
				ipv4 = append(ipv4, address)
			} else {
				ipv6 = append(ipv6, address)
			}
		}
	}
	return ipv4, ipv6
}

// usable excludes addresses that no mount target has: unspecified, multicast, broadcast, and
// link-local ones, at which the instance metadata service hands out credentials.
func usable(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsValid() && !address.IsUnspecified() && !address.IsMulticast() &&
		!address.IsLinkLocalUnicast() && address != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
