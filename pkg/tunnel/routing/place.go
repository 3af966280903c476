package routing

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"gnuthought.com/efs-stunnel/pkg/ports"
)

// Place is where a node is. Each part may be unknown.
type Place struct {
	Region  string   `json:"region,omitempty"`
	Zone    string   `json:"zone,omitempty"`
	Subnets []string `json:"subnets,omitempty"` // that of the first interface first
}

// Known says whether near can be told from far.
func (p Place) Known() bool { return p.Zone != "" || len(p.Subnets) > 0 }

// MountTarget is one address of a file system.
type MountTarget struct {
	Address  netip.Addr
	Zone     string // "" when unknown
	Distance Distance
}

// Distance is how far away from the node a mount target is, in steps of latency and of cost.
type Distance int

// Distances, the nearest first.
const (
	OwnSubnet Distance = iota
	OwnZone
	Elsewhere
)

// nearest puts the mount targets of a file system in the order in which this node should try
// them: own subnet, own zone, then the others in an order that is the same at every look.
func nearest(target ports.Target, place Place) []MountTarget {
	zones := zonesOf(target)
	far := map[netip.Addr]Distance{}
	for address := range zones {
		far[address] = Elsewhere
		if place.Zone != "" && zones[address] == place.Zone {
			far[address] = OwnZone
		}
	}
	for _, subnet := range place.Subnets {
		if address, ok := target.AddressBySubnet[subnet]; ok {
			far[address.Unmap()] = OwnSubnet
		}
	}
	addresses := slices.SortedFunc(maps.Keys(zones), func(a, b netip.Addr) int {
		if far[a] != far[b] {
			return int(far[a] - far[b])
		}
		if c := strings.Compare(zones[a], zones[b]); c != 0 {
			return c
		}
		return a.Compare(b)
	})
	var order []MountTarget
	for _, address := range addresses {
		order = append(order, MountTarget{address, zones[address], far[address]})
	}
	return order
}

// zonesOf are all addresses that can be connected to, with their zones.
func zonesOf(target ports.Target) map[netip.Addr]string {
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

// usable leaves out what is no server of anybody: the node's own link, where its credentials
// are served, too; groups; and nothing at all.
func usable(address netip.Addr) bool {
	address = address.Unmap()
	return address.IsValid() && !address.IsUnspecified() && !address.IsMulticast() &&
		!address.IsLinkLocalUnicast() && address != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}
