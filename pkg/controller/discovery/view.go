package discovery

import (
	"iter"
	"maps"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// view is the file systems, as the table in force and the latest listings show them.
type view struct {
	options  Options
	table    ports.Table
	pinned   ports.Table
	findings findings
	seen     map[string]efs.FileSystem
	listed   map[string]bool // by the latest listing
	gone     map[string]bool
}

func newView(o Options, s state, table ports.Table, gone []string) view {
	v := view{options: o, table: table, findings: s.findings, listed: map[string]bool{}, gone: map[string]bool{}}
	if s.pinned.table != nil {
		v.pinned = *s.pinned.table
	}
	for _, fs := range s.findings.listing.FileSystems {
		if ports.CheckTargetID(fs.ID) == nil {
			v.listed[fs.ID] = true
		}
	}
	for _, id := range gone {
		v.gone[id] = true
	}
	v.seen = remember(s.seen, s.findings.listing, func(id string) bool { return table.Targets[id].Port != 0 })
	return v
}

// snapshot is what the other loops choose from.
func (v view) snapshot() targets.Snapshot {
	s := targets.Snapshot{
		Known: v.findings.over, Listed: v.findings.listed(),
		Unanswered:  !v.findings.listed() && v.findings.failure != nil,
		FileSystems: map[string]volumes.Candidate{}, Gone: v.gone,
	}
	for _, ids := range []iter.Seq[string]{maps.Keys(v.table.Targets), maps.Keys(v.listed)} {
		for id := range ids {
			if v.passes(id) {
				s.FileSystems[id] = v.candidate(id)
			}
		}
	}
	return s
}

// passes says whether the cluster may use a file system. One that no listing has shown is
// known by its id only; that it has the tags was seen when it entered the table.
func (v view) passes(id string) bool {
	if v.isPinned(id) {
		return true
	}
	if fs, ok := v.seen[id]; ok {
		return v.options.Filter.Match(fs)
	}
	return efs.Filter{IDs: v.options.Filter.IDs}.Match(efs.FileSystem{ID: id})
}

func (v view) isPinned(id string) bool {
	_, ok := v.pinned.Targets[id]
	return ok
}

func (v view) candidate(id string) volumes.Candidate {
	target := v.table.Targets[id]
	c := volumes.Candidate{
		ID: id, Name: target.Name, Port: target.Port, OneZone: target.AvailabilityZone,
		Zones: slices.Sorted(maps.Keys(target.AddressByZone)), Unusable: v.unusable(id),
	}
	if target.Name == id {
		c.Name = "" // the table has the id where there is no name
	}
	fs, ok := v.seen[id]
	if !ok {
		return c
	}
	c.Tags = fs.Tags
	if !v.isPinned(id) {
		c.Name, c.OneZone, c.Zones = fs.Name, fs.AvailabilityZone, v.zones(fs)
	}
	return c
}

// zones are where nodes have a mount target near.
func (v view) zones(fs efs.FileSystem) []string {
	var zones []string
	for _, mount := range fs.MountTargets {
		if mount.ZoneName != "" && mount.Serves(v.options.VPCID) {
			zones = append(zones, mount.ZoneName)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// unusable says why nothing new may be put on a file system, or "".
func (v view) unusable(id string) string {
	target, fs := v.table.Targets[id], v.seen[id]
	switch {
	case v.gone[id]:
		return "the file system does not exist any longer"
	case v.isPinned(id):
		return withoutAddress(target)
	case !target.NotFoundSince.IsZero():
		return "the EFS API does not list it since " + target.NotFoundSince.Format(time.RFC3339)
	case len(fs.MountTargets) == 0 && v.findings.listing.Failed[id] != nil:
		return v.unread(target)
	case fs.ID == "":
		return withoutAddress(target)
	}
	reason, _ := efs.Usable(fs, v.options.VPCID)
	return reason
}

// unread is about a file system whose mount targets could never be read. The addresses in the
// table are still the best that is known.
func (v view) unread(target ports.Target) string {
	if withoutAddress(target) == "" {
		return ""
	}
	return "its mount targets could not be read"
}

func withoutAddress(target ports.Target) string {
	if len(target.AddressBySubnet)+len(target.AddressByZone) > 0 {
		return ""
	}
	return "no address of it is known yet"
}

// numbers are for the metrics.
func (v view) numbers(s state) numbers {
	n := numbers{
		targets: map[string]int{usable: 0, unusable: 0, missing: 0}, sizes: map[string]int64{},
		succeeded: s.findings.succeeded, unreadable: s.unreadable(), known: true,
		tableBytes: len(s.table.content()),
	}
	for id, target := range v.table.Targets {
		switch {
		case !target.NotFoundSince.IsZero():
			n.targets[missing]++
		case v.unusable(id) != "":
			n.targets[unusable]++
		default:
			n.targets[usable]++
		}
	}
	for id := range v.listed {
		if v.passes(id) {
			n.sizes[id] = v.seen[id].SizeBytes
		}
	}
	n.portsInUse, n.portsFree = v.countPorts(s)
	return n
}

// countPorts tells the ports that targets have from those that are left for new ones.
func (v view) countPorts(s state) (inUse, free int) {
	owners, named := v.table.Owners(), map[int]bool{}
	for _, object := range s.volumes {
		if volume := ports.VolumeOf(object); volume.Loopback {
			named[volume.Port] = true
		}
	}
	r := v.options.Range
	for port := r.Base; port < r.Base+r.Count; port++ {
		_, owned := owners[port]
		if !owned && !named[port] && r.Gives(port) {
			free++
		}
	}
	return len(owners), free
}
