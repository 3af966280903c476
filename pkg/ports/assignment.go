package ports

import (
	"maps"
	"slices"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Assign gives every target its port. A port, once given, stays with its file system or access
// point, and goes to no other while the old table or any volume on the loopback names it.
//
//	                before                       after
//	found           listed, not in the table     the lowest port never given; when there is none,
//	                                             the longest retired
//	kept            in the table                 same port; name and addresses as listed or pinned
//	taken over      by the original system       same port, also outside the range; unknown keys stay
//	lost table      only volumes remember        the port that most of its volumes name
//	restored        volume with another port     table as it was; volume corrected, its port retired
//	missing         not in a complete listing    same port, not_found_since
//	gone            missing 3 times, not found,  left; port retired, free from the next call on
//	                and no volume names it
//	no answer       listing partial or empty     as before
//	foreign         listing of another account   as before; told, and nothing is taken from it
//	                or region
//	pinned          by the administrator         merged over what is listed; never missing
//	unpinned        was pinned, never listed     missing; gone only when nothing is on it
//	out of ports    no port is left              not in the table; told; all others as ever
//	table full      no room in the ConfigMap     not in the table; told; all others as ever
//
// Equal inputs give equal outputs, and an output that was applied gives no further change,
// with one exception: a port that an output freed can be given in the next call, and is when
// no other is left.
func Assign(in Input) Output {
	p := newPlanner(in)
	p.checkSource()
	p.rebuild()
	p.pinPorts()
	p.countAbsences()
	p.removeGone()
	p.removeAccessPoints()
	p.givePorts()
	p.describeTargets()
	p.correctVolumes()
	return p.output()
}

// planner is one call's work.
type planner struct {
	in     Input
	listed map[string]efs.FileSystem
	table  Table
	owners map[int]Key // of the table as it grows
	// held are ports that the old table or a volume names: nobody new gets them.
	held    map[int]bool
	bytes   int      // of the encoded table with all its descriptions; 0 when not counted
	volumes []Volume // on the loopback, in order
	out     Output
	news    []News // told before or not
}

func newPlanner(in Input) *planner {
	p := &planner{in: in, listed: map[string]efs.FileSystem{}, held: map[int]bool{}}
	p.table = p.before().Clone()
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
	slices.SortFunc(p.volumes, compareVolumes)
	p.out.State = State{Absences: map[string]int{}, CountedAt: in.State.CountedAt}
	return p
}

// before is the table as it was, which a lost one is as if empty.
func (p *planner) before() Table {
	if p.in.Table == nil {
		return Table{}
	}
	return *p.in.Table
}

// give enters a key with its port into the table.
func (p *planner) give(key Key, port int) {
	target, there := p.table.Targets[key.FileSystem]
	if !there {
		target.Name = key.FileSystem
	}
	p.table.Targets[key.FileSystem] = target.withPort(key.AccessPoint, port)
	p.owners[port] = key
}

// withPort returns the target with a port for its file system, or for an access point of it.
func (t Target) withPort(accessPoint string, port int) Target {
	if accessPoint == "" {
		t.Port = port
		return t
	}
	point := t.AccessPoints[accessPoint]
	point.Port = port
	t.AccessPoints = over(t.AccessPoints, map[string]AccessPoint{accessPoint: point})
	return t
}

// has says whether the key has a port.
func (p *planner) has(key Key) bool {
	port, ok := p.table.Port(key)
	return ok && port != 0
}

// givePorts serves those first who would lose most without a port.
func (p *planner) givePorts() {
	p.bytes = 0 // targets left since it was counted
	for _, key := range p.namedKeys() {
		p.givePort(key, false)
	}
	for _, keys := range [][]Key{p.pinnedKeys(), p.foundKeys(), p.demandedKeys()} {
		for _, key := range keys {
			p.givePort(key, true)
		}
	}
	// An access point that only volumes remember has no place without its file system's port.
	for _, id := range slices.Sorted(maps.Keys(p.table.Targets)) {
		if p.table.Targets[id].Port == 0 {
			p.remove(id)
		}
	}
}

// givePort gives a newcomer no port when the table is full. What a volume names is none: pods may
// have it mounted.
func (p *planner) givePort(key Key, newcomer bool) {
	parent := Key{FileSystem: key.FileSystem}
	if p.has(key) || key != parent && !p.has(parent) {
		return
	}
	port, ok := p.nextPort()
	if !ok {
		p.tell(News{Kind: OutOfPorts, FileSystem: key.FileSystem,
			Message: outOfPorts(key, p.in.Range)})
		return
	}
	if newcomer && !p.takeRoom(key) {
		p.tell(News{Kind: TableFull, FileSystem: key.FileSystem, Message: tableFull(key)})
		return
	}
	p.give(key, port)
}

// nextPort finds the lowest port never given, else the longest retired one.
func (p *planner) nextPort() (port int, ok bool) {
	retired := map[int]bool{}
	for _, port := range p.table.Retired {
		retired[port] = true
	}
	for port := p.in.Range.Base; port < p.in.Range.Base+p.in.Range.Count; port++ {
		if p.free(port) && !retired[port] {
			return port, true
		}
	}
	i := slices.IndexFunc(p.table.Retired, p.free)
	if i < 0 {
		return 0, false
	}
	return p.table.Retired[i], true
}

// free says whether a key that never had the port may get it.
func (p *planner) free(port int) bool {
	_, taken := p.owners[port]
	return !taken && !p.held[port] && p.in.Range.Gives(port)
}

// foundKeys are file systems that the listing offers for the first time.
func (p *planner) foundKeys() []Key {
	var keys []Key
	for _, id := range slices.Sorted(maps.Keys(p.listed)) {
		fs := p.listed[id]
		if _, usable := efs.Usable(fs, p.in.VPCID); usable && p.in.Filter.Match(fs) {
			keys = append(keys, Key{FileSystem: id})
		}
	}
	return keys
}

// output closes the books.
func (p *planner) output() Output {
	p.tidyRetired()
	p.out.Table = p.table
	p.out.Changed = p.in.Table == nil || !p.table.equalButTime(p.before())
	if p.out.Changed {
		p.out.Table.LastUpdate = p.now()
	}
	p.reportChanges()
	p.reportListing()
	p.out.State.Standing, p.out.News = p.sortNews()
	return p.out
}

// tidyRetired keeps each port once, and none that is in use.
func (p *planner) tidyRetired() {
	seen := map[int]bool{}
	p.table.Retired = slices.DeleteFunc(p.table.Retired, func(port int) bool {
		_, used := p.owners[port]
		drop := used || seen[port]
		seen[port] = true
		return drop
	})
}

// now is as exact as the format.
func (p *planner) now() time.Time { return p.in.Now.UTC().Truncate(time.Second) }
