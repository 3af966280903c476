package ports

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// described returns the targets of the table with everything but ports updated.
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
		target = target.merge(pin, listed)
	}
	return target
}

// needsIAM reports whether a tunnel shows a client certificate. While the demand is not known, none
// stops: that would cut off the pods that need it.
func (p *planner) needsIAM(key Key, before bool) bool {
	return slices.Contains(p.in.Demand.IAM, key) || before && !p.in.Demand.Known
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
	t.AvailabilityZone = ""
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
