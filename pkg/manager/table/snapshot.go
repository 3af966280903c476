package table

import (
	"maps"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// view has the file systems of the table and of the latest listings.
type view struct {
	Options
	state
	table  ports.Table
	listed map[string]bool // by the latest listing
	gone   map[string]bool
	others map[string]string // as in targets.Snapshot
}

func newView(o Options, s state, table ports.Table, gone []string) view {
	v := view{Options: o, state: s, table: table, listed: map[string]bool{}, gone: map[string]bool{}, others: o.others(s.volumes)}
	for _, fs := range s.inventory.listing.FileSystems {
		if ports.CheckTargetID(fs.ID) == nil {
			v.listed[fs.ID] = true
		}
	}
	for _, id := range gone {
		if v.others[id] == "" {
			v.gone[id] = true
		}
	}
	v.seen = remember(s.seen, s.inventory.listing, func(id string) bool { return table.Targets[id].Port != 0 })
	return v
}

func (v view) snapshot() targets.Snapshot {
	s := targets.Snapshot{
		Known: v.inventory.polled, Listed: v.inventory.listed(),
		Unanswered:  !v.inventory.listed() && v.inventory.failure != nil,
		FileSystems: map[string]volumes.Candidate{}, Gone: v.gone, Others: v.others, Excluded: v.excluded(),
		Servers: map[string]bool{},
	}
	for _, id := range slices.AppendSeq(slices.Collect(maps.Keys(v.table.Targets)), maps.Keys(v.listed)) {
		if v.passes(id) {
			s.FileSystems[id] = v.candidate(id)
			if v.table.Targets[id].ClientCertificate {
				s.Servers[id] = true
			}
		}
	}
	return s
}

func (v view) excluded() map[string]string {
	all := map[string]string{}
	for id := range v.listed {
		if why := v.Filter.Exclusion(v.seen[id]); why != "" && !v.isPinned(id) {
			all[id] = why
		}
	}
	return all
}

// passes says whether the cluster may use a file system. For one that was in no listing, only the id is
// known; the tags were checked when it was added to the table.
func (v view) passes(id string) bool {
	if v.isPinned(id) {
		return true
	}
	if fs, ok := v.seen[id]; ok {
		return v.Filter.Match(fs)
	}
	return efs.Filter{IDs: v.Filter.IDs}.Match(efs.FileSystem{ID: id})
}

func (v view) isPinned(id string) bool {
	_, ok := v.pinned.targets()[id]
	return ok
}

func (v view) candidate(id string) volumes.Candidate {
	target := v.table.Targets[id]
	c := volumes.Candidate{
		ID: id, Port: target.Port, OneZone: target.AvailabilityZone,
		Zones: target.Zones(), Unusable: v.unusable(id),
	}
	if v.others[id] != "" {
		c.Port = 0 // a volume with this installation's port would not be served by the other one's agents
	}
	fs, ok := v.seen[id]
	if !ok {
		return c
	}
	c.Tags = fs.Tags
	if !v.isPinned(id) {
		c.OneZone, c.Zones = fs.AvailabilityZone, v.zones(fs)
	}
	return c
}

// zones are those with a mount target that the nodes can use.
func (v view) zones(fs efs.FileSystem) []string {
	var zones []string
	for _, mount := range fs.MountTargets {
		if mount.ZoneName != "" && mount.Serves(v.VPCID) {
			zones = append(zones, mount.ZoneName)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// unusable says why no new volume may be put on a file system, or "".
func (v view) unusable(id string) string {
	target, fs := v.table.Targets[id], v.seen[id]
	switch {
	case v.others[id] != "":
		return "it " + volumes.BelongsTo(v.others[id])
	case v.gone[id]:
		return "the file system does not exist any longer"
	case !v.isPinned(id) && !target.NotFoundSince.IsZero():
		return "the EFS API does not list it since " + target.NotFoundSince.Format(time.RFC3339)
	case !v.isPinned(id) && len(fs.MountTargets) == 0 && v.inventory.listing.Failed[id] != nil:
		if target.HasAddress() {
			return "" // the table has addresses of an earlier listing
		}
		return "its mount targets could not be read"
	case v.isPinned(id) || fs.ID == "":
		if target.HasAddress() {
			return ""
		}
		return "no address of it is known yet"
	}
	reason, _ := efs.Usable(fs, v.VPCID)
	return reason
}

// numbers are what the metrics show even while nothing can be decided.
func (s state) numbers() numbers {
	return numbers{lastSuccess: one(seconds(s.inventory.succeeded))}
}

// numbers are what the metrics show.
func (v view) numbers() numbers {
	n := v.state.numbers()
	inUse, free := v.countPorts()
	n[tableBytes], n[portsInUse], n[portsFree] = one(float64(len(v.state.table.content()))), one(inUse), one(free)
	n[fileSystemSize] = map[string]float64{}
	counts := map[string]float64{usable: 0, unusable: 0, missing: 0}
	for id, target := range v.table.Targets {
		switch {
		case !target.NotFoundSince.IsZero():
			counts[missing]++
		case v.unusable(id) != "":
			counts[unusable]++
		default:
			counts[usable]++
		}
	}
	for id := range v.listed {
		if v.passes(id) {
			n[fileSystemSize][id] = float64(v.seen[id].SizeBytes)
		}
	}
	n[targetCount] = counts
	return n
}

func (v view) countPorts() (inUse, free float64) {
	owners, named := v.table.Owners(), map[int]bool{}
	for _, object := range v.volumes {
		if volume := ports.VolumeOf(object); volume.Loopback {
			named[volume.Port] = true
		}
	}
	r := v.Range
	for port := r.Base; port < r.Base+r.Count; port++ {
		_, owned := owners[port]
		if !owned && !named[port] && r.Gives(port) {
			free++
		}
	}
	return float64(len(owners)), free
}
