package ports

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Assign gives every target its port. A port, once given, stays with its file system or access
// point, and goes to no other while the old table or any volume on the loopback has it.
//
//	                before                       after
//	found           listed, not in the table     the lowest port never given; when there is none,
//	                                             the longest retired
//	kept            in the table                 same port; name and addresses as listed or pinned
//	taken over      by the original system       same port, also outside the range; unknown keys stay
//	lost table      only volumes have the port   the port that most of its volumes have
//	restored        volume with another port     table as it was; volume corrected, its port retired
//	missing         not in a complete listing    same port, not_found_since
//	gone            missing 3 times, not found,  removed; port retired, free from the next call on
//	                and no volume is on it
//	no answer       listing partial or empty     as before
//	foreign         listing of another account   as before; reported, and nothing is taken from it
//	                or region
//	pinned          by the administrator         merged over what is listed; never missing
//	unpinned        was pinned, never listed     missing; gone only when nothing is on it
//	out of ports    no port is left              not in the table; reported; all others as ever
//	table full      ConfigMap would be too large not in the table; reported; all others as ever
//
// Equal inputs give equal outputs, and an output that was applied gives no further change, with one
// exception: a port that an output freed can be given in the next call, and is when no other is left.
func Assign(in Input) Output {
	p := newPlanner(in)
	p.checkSource()
	p.rebuild()
	p.assignPinned()
	p.countAbsences()
	p.removeGone()
	p.removeAccessPoints()
	p.assignPorts()
	p.table.Targets = p.described()
	p.correctVolumes()
	return p.output()
}

// planner is the state of one call of Assign.
type planner struct {
	in        Input
	before    Table // empty when it was lost
	listed    map[string]efs.FileSystem
	table     Table
	owners    map[int]Key  // of the table as it grows
	held      map[int]bool // ports that the old table or a volume has: no other key gets them
	iam       sets.Set[Key]
	unused    []int    // ports that assignPorts may give, the next one first
	bytes     int      // length of the encoded table with its newcomers; 0 when not counted
	volumes   []Volume // on the loopback, in order
	requiring []Volume // those of them whose file system must be in the table
	out       Output
	events    []Event
}

func newPlanner(in Input) *planner {
	p := &planner{in: in, listed: map[string]efs.FileSystem{}, held: map[int]bool{}, iam: sets.New(in.Demand.IAM...)}
	if in.Table != nil {
		p.before = *in.Table
	}
	p.table = p.before.Clone()
	p.owners = p.table.Owners()
	for port := range p.owners {
		p.held[port] = true
	}
	for _, fs := range in.Listing.FileSystems {
		if _, twice := p.listed[fs.ID]; !twice && CheckTargetID(fs.ID) == nil {
			p.listed[fs.ID] = fs
		}
	}
	for _, v := range in.Volumes {
		if v.Loopback {
			p.volumes = append(p.volumes, v)
			p.held[v.Port] = true
		}
	}
	slices.SortFunc(p.volumes, func(a, b Volume) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), compareKeys(a.On, b.On), cmp.Compare(a.Port, b.Port))
	})
	p.requiring = requiring(p.volumes, in.Table == nil)
	p.out.State = State{Absences: map[string]int{}, CountedAt: in.State.CountedAt}
	return p
}

func (p *planner) assign(key Key, port int) {
	target, exists := p.table.Targets[key.FileSystem]
	if !exists {
		target.Name = key.FileSystem
	}
	p.table.Targets[key.FileSystem] = target.withPort(key.AccessPoint, port)
	p.owners[port] = key
}

// withPort returns the target with a port for its file system, or for an access point of it, which is entered into the
// map that the target has.
func (t Target) withPort(accessPoint string, port int) Target {
	if accessPoint == "" {
		t.Port = port
		return t
	}
	if t.AccessPoints == nil {
		t.AccessPoints = map[string]AccessPoint{}
	}
	point := t.AccessPoints[accessPoint]
	point.Port = port
	t.AccessPoints[accessPoint] = point
	return t
}

func (p *planner) has(key Key) bool {
	port, _ := p.table.Port(key)
	return port != 0
}

// assignPorts begins with those to which a port matters most.
func (p *planner) assignPorts() {
	p.bytes = 0 // targets were removed since it was counted
	p.unused = p.unusedPorts()
	for _, key := range p.requiredKeys() {
		p.assignPort(key, false)
	}
	for _, key := range slices.Concat(p.pinnedKeys(), p.usableKeys(), p.demandedKeys()) {
		p.assignPort(key, true)
	}
	// An access point that only volumes have is not served without its file system's port.
	for _, id := range slices.Sorted(maps.Keys(p.table.Targets)) {
		if p.table.Targets[id].Port == 0 {
			p.remove(id)
		}
	}
}

// assignPort assigns no port to a newcomer when the table is full. A key that volumes require is
// not one: pods may have it mounted.
func (p *planner) assignPort(key Key, newcomer bool) {
	parent := Key{FileSystem: key.FileSystem}
	if p.has(key) || key != parent && !p.has(parent) {
		return
	}
	switch {
	case len(p.unused) == 0:
		p.report(Event{Reason: wellknown.EventOutOfPorts, FileSystem: key.FileSystem, AccessPoint: key.AccessPoint}, "no port is left for %s among %d to %d: widen --stunnel-port-count",
			key, p.in.Range.Base, p.in.Range.Base+p.in.Range.Count-1)
	case newcomer && !p.reserveBytes(key):
		p.report(Event{Reason: wellknown.EventTableFull, FileSystem: key.FileSystem, AccessPoint: key.AccessPoint}, "no port for %s: the table would outgrow %d KiB, and ConfigMap %s holds at most 1 MiB: "+
			"take targets without volumes out of it, once --file-system-ids or --file-system-tags keep them out",
			key, MaxTableBytes>>10, wellknown.TargetsConfigMap)
	default:
		p.assign(key, p.unused[0])
		p.unused = p.unused[1:]
	}
}

// unusedPorts returns those that keys without one may get, once targets are removed: those never given, from the lowest
// on, then the retired ones from the longest retired on.
func (p *planner) unusedPorts() (unused []int) {
	retired := sets.New(p.table.Retired...)
	for port := p.in.Range.Base; port < p.in.Range.Base+p.in.Range.Count; port++ {
		if !retired.Has(port) {
			unused = append(unused, port)
		}
	}
	return slices.DeleteFunc(append(unused, p.table.Retired...), func(port int) bool { return !p.free(port) })
}

// free reports whether a key that never had the port may get it.
func (p *planner) free(port int) bool {
	_, taken := p.owners[port]
	return !taken && !p.held[port] && p.in.Range.Gives(port)
}

// usableKeys are the listed file systems that nodes can use. The others are reported, except for one
// whose mount targets could not be read, which the caller reports with the error.
func (p *planner) usableKeys() []Key {
	var keys []Key
	for _, id := range slices.Sorted(maps.Keys(p.listed)) {
		reason, usable := efs.Usable(p.listed[id], p.in.VPCID)
		switch {
		case !p.in.Filter.Match(p.listed[id]):
		case usable:
			keys = append(keys, Key{FileSystem: id})
		case p.in.Listing.Failed[id] == nil && !p.pinned(id):
			p.report(Event{Reason: wellknown.EventFileSystemUnusable, FileSystem: id}, "%s", reason)
		}
	}
	return keys
}

// demandedKeys are the access points for which there are claims or volumes.
func (p *planner) demandedKeys() []Key {
	return slices.DeleteFunc(valid(p.in.Demand.AccessPoints), func(key Key) bool { return key.AccessPoint == "" })
}

func (p *planner) output() Output {
	p.tidyRetired()
	p.out.Table = p.table
	p.out.Changed = p.in.Table == nil || !p.table.equalExceptTime(p.before)
	if p.out.Changed {
		p.out.Table.LastUpdate = p.now()
	}
	p.reportPins()
	p.reportNodePorts()
	p.reportAddresses()
	p.reportAuthorities()
	p.reportChanges()
	p.sortEvents()
	return p.out
}

// tidyRetired keeps each port once, and none that is in use.
func (p *planner) tidyRetired() {
	seen := sets.KeySet(p.owners)
	p.table.Retired = slices.DeleteFunc(p.table.Retired, func(port int) bool {
		drop := seen.Has(port)
		seen.Insert(port)
		return drop
	})
}

// now is as exact as the format.
func (p *planner) now() time.Time { return p.in.Now.UTC().Truncate(time.Second) }

// MaxTableBytes is how long newcomers may make the encoded table. The apiserver takes 1 MiB of
// data in a ConfigMap; the rest is for what targets of the table still need: not_found_since, new
// mount targets, and targets that volumes bring back.
const MaxTableBytes = 900 << 10

// reserveBytes reports whether the table stays below its limit with a newcomer, and then counts
// the newcomer in.
func (p *planner) reserveBytes(key Key) bool {
	if p.bytes == 0 {
		table := p.table
		table.Targets = p.described()
		p.bytes = len(Encode(table))
	}
	target, exists := p.table.Targets[key.FileSystem]
	target.AccessPoints = anyOf(target.AccessPoints) // what the others take does not change
	grown := p.bytes
	if exists {
		grown -= p.encodedBytes(key.FileSystem, target)
	}
	grown += p.encodedBytes(key.FileSystem, target.withPort(key.AccessPoint, wellknown.MaxPort))
	if grown > MaxTableBytes {
		return false
	}
	p.bytes = grown
	return true
}

// anyOf returns a map with one entry of another one, nil if that has none.
func anyOf(points map[string]AccessPoint) map[string]AccessPoint {
	for id, point := range points {
		return map[string]AccessPoint{id: point}
	}
	return nil
}

func (p *planner) encodedBytes(id string, t Target) int {
	return len(Encode(Table{Targets: map[string]Target{id: p.describe(id, t)}})) - len(keyTargets+":\n")
}

// checkSource ignores a listing of another account or region than the table's: what it lacks is
// not missing, and what it has is not the cluster's. A listing is used when it names the
// account and region of the table, or has at least a third of the file systems of the table. The
// administrator who means the other account writes it into the table.
//
//	table has      listing of     file systems of the table listed   listing
//	none           any            –                                  used; its source is recorded
//	any            same source    any number                         used
//	any            other or no    a third or more                    used; its source is recorded
//	any            other or no    fewer                              ignored; Output.Foreign
//
// An empty listing proves nothing anyway and is left to efs.Listing.Conclusive.
func (p *planner) checkSource() {
	l := p.in.Listing
	if len(l.FileSystems) == 0 {
		return
	}
	same := l.Source != "" && l.Source == p.table.Source
	known, listed := p.overlap()
	if !same && 3*listed < known {
		p.out.Foreign = foreignMessage(l, p.table.Source, known, listed)
		p.in.Listing, p.listed = efs.Listing{}, map[string]efs.FileSystem{}
		return
	}
	p.table.Source = cmp.Or(l.Source, p.table.Source)
}

// overlap counts the file systems that listings should show, which are those of the table and of
// the volumes that require one, and those of them that this one shows. Not counted are targets that
// are or were pinned, or are another installation's: they may be another account's.
func (p *planner) overlap() (known, listed int) {
	ids := sets.KeySet(p.table.Targets)
	for _, volume := range p.requiring {
		if !volume.Foreign {
			ids.Insert(volume.On.FileSystem)
		}
	}
	for id := range ids {
		if p.table.Targets[id].PinnedOnly || p.pinned(id) {
			continue
		}
		known++
		if _, ok := p.listed[id]; ok {
			listed++
		}
	}
	return known, listed
}

func foreignMessage(l efs.Listing, source string, known, listed int) string {
	mend := "take those that no longer exist out of"
	if l.Source != "" {
		mend = "set account_and_region to " + l.Source + " in"
	}
	return fmt.Sprintf("the manager's AWS account or region looks wrong: the EFS API lists %d file systems of %s, "+
		"among them %d of the %d of the table, which is of %s. Nothing is added, marked missing or removed meanwhile, and all that "+
		"is in the table is served. Check the manager's AWS credentials and --aws-region; if they are right, %s key %s of ConfigMap %s",
		len(l.FileSystems), cmp.Or(l.Source, "an unknown account"), listed, known, cmp.Or(source, "an unknown account"),
		mend, wellknown.TargetsKey, wellknown.TargetsConfigMap)
}
