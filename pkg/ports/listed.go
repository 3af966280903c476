package ports

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// describeTargets brings everything but ports up to date.
func (p *planner) describeTargets() {
	for id, target := range p.table.Targets {
		p.table.Targets[id] = p.described(id, target)
	}
}

// described is a target as listing, demand and administrator have it now.
func (p *planner) described(id string, target Target) Target {
	fs, listed := p.listed[id]
	if listed {
		target = p.describe(target, fs)
	}
	p.identify(id, &target)
	target.PinnedOnly = p.isPinnedOnly(id, target)
	if pin, ok := p.in.Pinned.Targets[id]; ok {
		target = target.merge(pin, listed)
	}
	return target
}

// isPinnedOnly says whether the administrator is all who ever knew of a file system. A listing
// that lacks it is asked for where the table may be older than the mark.
func (p *planner) isPinnedOnly(id string, t Target) bool {
	_, listed := p.listed[id]
	_, before := p.before().Targets[id]
	return !listed && (t.PinnedOnly || p.pinned(id) && (!before || p.in.Listing.Conclusive()))
}

func (p *planner) describe(t Target, fs efs.FileSystem) Target {
	t.Name = fs.ID
	if fs.Name != "" {
		t.Name = strings.ToValidUTF8(fs.Name, "\ufffd") // as it will be read back
	}
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

// addresses are those of the mount targets that serve. One in the table stays while its mount
// target is updated or in error: that often passes, and failover does the rest.
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
		if _, first := byZone[mount.ZoneName]; !first && checkLocation(mount.ZoneName) == nil {
			byZone[mount.ZoneName] = mount.Address
		}
	}
	return bySubnet, byZone
}

// reportListing tells which file systems the cluster could have and cannot use. One whose
// mount targets could not be read is the caller's to report, with the error.
func (p *planner) reportListing() {
	for _, id := range slices.Sorted(maps.Keys(p.listed)) {
		fs := p.listed[id]
		if p.in.Listing.Failed[id] != nil || p.pinned(id) || !p.in.Filter.Match(fs) {
			continue
		}
		if reason, ok := efs.Usable(fs, p.in.VPCID); !ok {
			p.tell(News{Kind: Unusable, FileSystem: id, Message: reason})
		}
	}
}
