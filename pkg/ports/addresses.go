package ports

import (
	"maps"
	"net/netip"
	"slices"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// reportAddresses reports targets with an address of another file system: it is mistyped in a pin, or it
// was that of a deleted mount target, and AWS gave it to the next one. A server's certificate may be valid
// for all file systems of a region, so new mounts would show the other one's data. Nothing is removed: the
// administrator may have pinned the target to a copy of it.
func (p *planner) reportAddresses() {
	owners := p.listedAddresses()
	for _, id := range slices.Sorted(maps.Keys(p.table.Targets)) {
		for _, address := range p.table.Targets[id].addresses() {
			if len(owners[address]) == 0 {
				owners[address] = []string{id}
			}
			if owner := owners[address][0]; !slices.Contains(owners[address], id) && !p.sameServer(id, owner) {
				p.report(Event{Kind: Ambiguous, FileSystem: id}, "its address %s is also that of %s: new mounts of its volumes may show the data of that one. "+
					"Correct the address, unless both are one file system; if %s was deleted, delete its volumes", address, owner, id)
				break
			}
		}
	}
}

// sameServer reports whether two targets name one server, which then has two ids on purpose.
func (p *planner) sameServer(id, other string) bool {
	name := p.table.Targets[id].DNSName
	return name != "" && name == p.table.Targets[other].DNSName
}

// listedAddresses are the ids of the file systems that the listing has at each address: more than one
// where the VPC is unknown.
func (p *planner) listedAddresses() map[netip.Addr][]string {
	owners := map[netip.Addr][]string{}
	for _, id := range slices.Sorted(maps.Keys(p.listed)) {
		for _, mount := range p.listed[id].MountTargets {
			if !mount.Reachable(p.in.VPCID) || mount.State == efs.Deleting || mount.State == efs.Deleted {
				continue
			}
			for _, address := range []netip.Addr{mount.Address, mount.IPv6} {
				if address.IsValid() {
					owners[address] = append(owners[address], id)
				}
			}
		}
	}
	return owners
}

// addresses are those of all mount targets, sorted.
func (t Target) addresses() []netip.Addr {
	var all []netip.Addr
	for _, byLocation := range []map[string]netip.Addr{t.AddressBySubnet, t.AddressByZone, t.IPv6BySubnet, t.IPv6ByZone} {
		all = slices.AppendSeq(all, maps.Values(byLocation))
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
