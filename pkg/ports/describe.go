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
	bySubnet, byZone := p.addresses(t, fs)
	// No address at all is no better than an old one, and may be a wrong answer.
	if len(bySubnet) > 0 {
		t.AddressBySubnet, t.AddressByZone = bySubnet, byZone
	}
	return t
}

// addresses are those of the available mount targets. One in the table stays while its mount
// target is updated or in error: that often passes, and tunnels fail over meanwhile.
func (p *planner) addresses(t Target, fs efs.FileSystem) (bySubnet, byZone map[string]netip.Addr) {
	bySubnet, byZone = map[string]netip.Addr{}, map[string]netip.Addr{}
	targets := slices.Clone(fs.MountTargets)
	slices.SortFunc(targets, func(a, b efs.MountTarget) int { return strings.Compare(a.SubnetID, b.SubnetID) })
	for _, mount := range targets {
		stays := t.AddressBySubnet[mount.SubnetID] == mount.Address &&
			mount.State != efs.Deleting && mount.State != efs.Deleted
		if !mount.Reachable(p.in.VPCID) || !stays && mount.State != efs.Available || checkLocation(mount.SubnetID) != nil {
			continue
		}
		bySubnet[mount.SubnetID] = mount.Address
		if _, exists := byZone[mount.ZoneName]; !exists && checkLocation(mount.ZoneName) == nil {
			byZone[mount.ZoneName] = mount.Address
		}
	}
	return bySubnet, byZone
}
