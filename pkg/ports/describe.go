package ports

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

func (p *planner) described() map[string]Target {
	targets := make(map[string]Target, len(p.table.Targets))
	for id, target := range p.table.Targets {
		targets[id] = p.describe(id, target)
	}
	return targets
}

// describe returns a target with what the listing, the demand and the administrator say of it now.
func (p *planner) describe(id string, target Target) Target {
	fs, listed := p.listed[id]
	if listed {
		target = p.describeListed(target, fs)
	}
	pin, pinned := p.in.Pinned.Targets[id]
	target.IAM = p.needsIAM(Key{FileSystem: id}, target.IAM)
	target.AccessPoints = maps.Clone(target.AccessPoints)
	for pointID, point := range target.AccessPoints {
		pin := pin.AccessPoints[pointID]
		point.IAM = pin.IAM || p.needsIAM(Key{FileSystem: id, AccessPoint: pointID}, point.IAM)
		point.Unknown = over(point.Unknown, pin.Unknown)
		target.AccessPoints[pointID] = point
	}
	target.PinnedOnly = p.isPinnedOnly(id, target)
	if pinned {
		target = target.merge(pin, listed && !leadsElsewhere(id, pin))
	}
	return target
}

// needsIAM reports whether a tunnel shows a client certificate. While the demand is not known, none
// stops: that would cut off the pods that need it.
func (p *planner) needsIAM(key Key, before bool) bool {
	return p.iam.Has(key) || before && !p.in.Demand.Known
}

// isPinnedOnly reports whether no listing has ever shown a file system that is or was pinned. A
// target that was in the table before it was pinned may only be from before this mark existed, so
// a conclusive listing has to lack it.
func (p *planner) isPinnedOnly(id string, t Target) bool {
	_, listed := p.listed[id]
	_, before := p.before.Targets[id]
	return !listed && (t.PinnedOnly || p.pinned(id) && (!before || p.in.Listing.Conclusive()))
}

func (p *planner) describeListed(t Target, fs efs.FileSystem) Target {
	t.Name = strings.ToValidUTF8(cmp.Or(fs.Name, fs.ID), "\ufffd") // as it will be decoded
	if p.in.DNSSuffix != "" {
		t.DNSName = fs.ID + "." + p.in.DNSSuffix
	}
	t.AvailabilityZone, t.CACertificates, t.ClientCertificate = "", "", false
	if zoneName.MatchString(fs.AvailabilityZone) {
		t.AvailabilityZone = fs.AvailabilityZone
	}
	t.NotFoundSince = time.Time{}
	// No address at all is no better than an old one, and may be a wrong answer.
	if mounts := p.served(t, fs); len(mounts) > 0 {
		t.AddressBySubnet, t.AddressByZone = byLocation(mounts, func(m efs.MountTarget) netip.Addr { return m.Address })
		t.IPv6BySubnet, t.IPv6ByZone = byLocation(mounts, func(m efs.MountTarget) netip.Addr { return m.IPv6 })
	}
	return t
}

// served are the available mount targets, by subnet. One in the table stays while it is updated or in
// error: that often passes, and tunnels fail over meanwhile.
func (p *planner) served(t Target, fs efs.FileSystem) []efs.MountTarget {
	var mounts []efs.MountTarget
	for _, mount := range fs.MountTargets {
		stays := t.has(mount) && mount.State != efs.Deleting && mount.State != efs.Deleted
		if mount.Reachable(p.in.VPCID) && (stays || mount.State == efs.Available) && checkLocation(mount.SubnetID) == nil {
			mounts = append(mounts, mount)
		}
	}
	slices.SortFunc(mounts, func(a, b efs.MountTarget) int { return strings.Compare(a.SubnetID, b.SubnetID) })
	return mounts
}

// has reports whether the table has an address of a mount target. A table of a version without IPv6 has
// only one of the two.
func (t Target) has(mount efs.MountTarget) bool {
	return mount.Address.IsValid() && t.AddressBySubnet[mount.SubnetID] == mount.Address ||
		mount.IPv6.IsValid() && t.IPv6BySubnet[mount.SubnetID] == mount.IPv6
}

// byLocation are the addresses of one family, without the mount targets that have none. Of several in
// one zone, the first counts.
func byLocation(mounts []efs.MountTarget, addressOf func(efs.MountTarget) netip.Addr) (bySubnet, byZone map[string]netip.Addr) {
	bySubnet, byZone = map[string]netip.Addr{}, map[string]netip.Addr{}
	for _, mount := range mounts {
		address := addressOf(mount)
		if !address.IsValid() {
			continue
		}
		bySubnet[mount.SubnetID] = address
		if _, exists := byZone[mount.ZoneName]; !exists && checkLocation(mount.ZoneName) == nil {
			byZone[mount.ZoneName] = address
		}
	}
	return bySubnet, byZone
}

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

// leadsElsewhere reports whether a pin has the host name of another file system of EFS than its id says: a replica, or
// what was restored.
func leadsElsewhere(id string, pin Target) bool {
	return slices.ContainsFunc(strings.Split(pin.DNSName, "."), func(label string) bool { return label != id && efs.CheckFileSystemID(label) == nil })
}

// merge puts what is pinned over what is known, except for access points. Where the listing has the server, its other
// addresses stay for failover; where it does not, only the administrator's count.
func (t Target) merge(pin Target, listed bool) Target {
	t.Name = cmp.Or(pin.Name, t.Name)
	t.DNSName = cmp.Or(pin.DNSName, t.DNSName)
	t.AvailabilityZone = cmp.Or(pin.AvailabilityZone, t.AvailabilityZone)
	t.CACertificates, t.ClientCertificate = pin.CACertificates, pin.ClientCertificate // one that was taken out is trusted no longer
	if !listed && pin.HasAddress() {
		t.AddressBySubnet, t.AddressByZone, t.IPv6BySubnet, t.IPv6ByZone = nil, nil, nil, nil
	}
	t.AddressBySubnet = over(t.AddressBySubnet, pin.AddressBySubnet)
	t.AddressByZone = over(t.AddressByZone, pin.AddressByZone)
	t.IPv6BySubnet = over(t.IPv6BySubnet, pin.IPv6BySubnet)
	t.IPv6ByZone = over(t.IPv6ByZone, pin.IPv6ByZone)
	t.IAM, t.Lanes = t.IAM || pin.IAM, pin.Lanes
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

// reportAddresses reports targets with an address of another file system: it is mistyped in a pin, or it
// was that of a deleted mount target, and AWS gave it to the next one. A server's certificate may be valid
// for all file systems of a region, so new mounts would show the other one's data. Nothing is removed: the
// administrator may have pinned the target to a copy of it, by a name of their own.
func (p *planner) reportAddresses() {
	owners := p.listedAddresses()
	for _, id := range slices.Sorted(maps.Keys(p.table.Targets)) {
		for _, address := range p.table.Targets[id].addresses() {
			if len(owners[address]) == 0 {
				owners[address] = []string{id}
			}
			if owner := owners[address][0]; !slices.Contains(owners[address], id) && !p.sameServer(id, owner) {
				p.report(Event{Reason: wellknown.EventAddressConflict, FileSystem: id}, "its address %s is also that of %s: new mounts of its volumes may show the data of that one. "+
					"Correct the address, unless both are one file system; if %s was deleted, delete its volumes", address, owner, id)
				break
			}
		}
	}
}

// sameServer reports whether two targets name one server, which then has two ids on purpose.
func (p *planner) sameServer(id, other string) bool {
	name := p.table.Targets[id].DNSName
	return name != "" && name == p.table.Targets[other].DNSName || slices.Contains(strings.Split(name, "."), other)
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
