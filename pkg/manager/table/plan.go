package table

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/manager/targets"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
)

// state is what the table is planned from. Its objects belong to the caches and are never changed.
type state struct {
	memory
	table       document
	pinned      document // with the last good table, if there was one, and the servers
	servers     map[string]server
	pods        map[string]serverPod // of these, by id
	noServers   []server             // whose Services cannot be used
	unconfirmed bool                 // the table in the cache may be behind the apiserver's
	live        bool                 // the table was read from the apiserver; if it is lost, volumes too
	volumes     []*corev1.PersistentVolume
	begun       map[string]bool // file systems of the mount Jobs that still exist
	inventory   inventory
	demand      ports.Demand // not confirmed yet
	made        ports.Demand // needs no confirmation
	now         time.Time
}

// memory is what a plan carries over to the next. It may be lost at any time.
type memory struct {
	assigned ports.State
	onPorts  []ports.Event             // conditions that ports.Assign found
	seen     map[string]efs.FileSystem // by the listings so far
	accepted efs.Listing               // the latest that was of the table's account and region
	sizes    map[string]string         // by server, what its pod said last of quotas; "" if it has none
}

// plan is the table to be stored, and what is published and reported once it is. Equal states give
// equal plans.
type plan struct {
	memory
	readLive bool // nothing can be planned before the table is read from the apiserver
	write    bool
	table    ports.Table
	pinned   map[string]ports.Target // with the servers
	servers  map[string]server
	decision *decision // nil while nothing can be decided
	snapshot targets.Snapshot
	missing  []string    // file systems of which the EFS API must say whether they exist
	points   []ports.Key // access points that it must describe, now and after every listing
	numbers  numbers
	notices  []notice
}

// decision is what the loops of root volumes and ports follow. It is never changed once published.
type decision struct {
	table, pinned *corev1.ConfigMap // that it was made from; pinned is nil if there is none
	// roots are the ports of the table's file systems; 0 where root volume and root claim are left
	// alone.
	roots       map[string]int
	removes     bool // root volumes of other file systems are deleted
	corrections []ports.Correction
}

// plan decides.
//
//	table        pinned table         first poll   decision
//	unreadable   any                  any          nothing; what was published stays
//	lost         unreadable           any          nothing: it may reserve ports that volumes name
//	lost         readable             not over     nothing: the table would have no addresses
//	lost         readable             over         assign, from the live volumes
//	readable     unreadable, never    any          the table as it is; root volumes are repaired
//	readable     readable, or once    any          assign, and correct volumes
func (o Options) plan(s state) plan {
	p := o.choose(s)
	if !p.readLive {
		p.showConditions()
	}
	return p
}

func (o Options) choose(s state) plan {
	switch held := s.isHeld(); {
	case !s.live && (s.unconfirmed || s.table.lost() && !held):
		return plan{readLive: true}
	case held:
		return plan{memory: s.memory, notices: s.conditions(), numbers: s.numbers()}
	case s.pinned.table == nil:
		return o.follow(s, *s.table.table, nil)
	}
	return o.assign(s)
}

// isHeld says that nothing can be decided.
func (s state) isHeld() bool {
	return s.table.err != nil || s.table.lost() && (s.pinned.table == nil || !s.inventory.polled)
}

// assign gives ports. A file system is gone only when the EFS API confirms it.
func (o Options) assign(s state) plan {
	in := o.input(s)
	out := ports.Assign(in)
	if out.Foreign != "" {
		s.inventory = s.inventory.since(s.accepted)
	}
	s.accepted = s.inventory.listing
	missing := out.Confirm
	if in.Gone = s.inventory.gone(missing); len(in.Gone) > 0 {
		out = ports.Assign(in)
	}
	s.assigned, s.onPorts = out.State, out.Conditions
	p := o.follow(s, out.Table, slices.Concat(out.Gone, s.left(out.Table)))
	p.write = out.Changed
	p.decision.corrections = slices.DeleteFunc(out.Corrections, func(c ports.Correction) bool { return p.snapshot.Others[c.On.FileSystem] != "" })
	p.notices = slices.Concat(portNotices(out.Events, s.volumes), p.notices)
	if len(s.inventory.unconfirmed(missing)) > 0 {
		p.missing = missing
	}
	if out.Foreign != "" {
		p.notices = append(p.notices, condition("identity", wellknown.EventIdentityLooksWrong, out.Foreign))
		p.points = nil // this identity cannot describe them
	}
	return p
}

// follow plans what follows from a table that is in force.
func (o Options) follow(s state, table ports.Table, gone []string) plan {
	v := newView(o, s, table, gone)
	p := plan{
		memory: s.memory, table: table, snapshot: v.snapshot(), points: o.demandedPoints(s),
		numbers: v.numbers(), notices: s.conditions(),
		decision: &decision{pinned: s.pinned.object, roots: map[string]int{}, removes: s.pinned.table != nil},
	}
	p.seen, p.pinned, p.servers = v.seen, s.pinned.targets(), s.servers
	p.notices = append(p.notices, exclusion(p.snapshot)...)
	p.snapshot.Tunnels = v.tunnels()
	p.numbers[pointCount] = countPoints(p.snapshot.Tunnels)
	for id, target := range table.Targets {
		p.decision.roots[id] = 0
		if !v.gone[id] && v.passes(id) {
			p.decision.roots[id] = target.Port
		}
	}
	return p
}

// showConditions sets the metrics that say the same as conditions.
func (p *plan) showConditions() {
	holds := func(reason, detail string) bool {
		return slices.ContainsFunc(p.notices, func(n notice) bool { return n.Reason == reason && strings.HasPrefix(n.Detail, detail) })
	}
	p.numbers[unreadable] = map[string]float64{}
	for _, name := range []string{wellknown.TargetsConfigMap, wellknown.PinnedConfigMap} {
		p.numbers[unreadable][name] = oneIf(holds(wellknown.EventTableUnreadable, name+" "))
	}
	if p.decision != nil {
		p.numbers[identity] = one(oneIf(holds(wellknown.EventIdentityLooksWrong, "") ||
			len(p.table.Targets) > 0 && holds(wellknown.EventDiscoveryFailed, listsNothing)))
	}
}

// others are the namespaces of other installations, by the file systems whose root volumes they have.
func (o Options) others(objects []*corev1.PersistentVolume) map[string]string {
	others := map[string]string{}
	for _, object := range objects {
		id, isRoot := rootID(object.Name)
		if namespace := volumes.OtherInstallation(object, o.Namespace); isRoot && namespace != "" {
			others[id] = namespace
		}
	}
	return others
}

// left are gone file systems that only mount Jobs remember. Each had a port when its Jobs began,
// and loses it only when it is gone, or when an administrator edits the table. The listing proves
// that the table was not lost: it must be the latest and complete.
func (s state) left(table ports.Table) []string {
	if s.inventory.failure != nil || !s.inventory.listing.Conclusive() {
		return nil
	}
	gone := maps.Clone(s.begun)
	for _, fs := range s.inventory.listing.FileSystems {
		delete(gone, fs.ID)
	}
	for _, known := range []ports.Table{table, *s.pinned.table} {
		for id := range known.Targets {
			delete(gone, id)
		}
	}
	return slices.Sorted(maps.Keys(gone))
}

func (o Options) input(s state) ports.Input {
	in := ports.Input{
		Table: s.table.table, Listing: s.inventory.listing, Pinned: *s.pinned.table,
		Demand: o.confirmed(s), Filter: o.Filter, VPCID: o.VPCID, DNSSuffix: o.DNSSuffix, Range: o.Range,
		Begun: slices.Sorted(maps.Keys(s.begun)), State: s.assigned, Now: s.now,
	}
	for _, object := range s.volumes {
		volume := ports.VolumeOf(object)
		volume.Foreign = o.isForeign(object)
		in.Volumes = append(in.Volumes, volume)
	}
	return in
}

// isForeign says that another installation created a volume: it has a provisioner of its own, or a
// namespace for its root claims.
func (o Options) isForeign(object *corev1.PersistentVolume) bool {
	if ref := object.Spec.ClaimRef; object.Spec.StorageClassName == wellknown.RootStorageClass && ref != nil {
		return ref.Namespace != o.Namespace
	}
	provisioner := object.Annotations[wellknown.AnnotationProvisionedBy]
	return provisioner != "" && provisioner != o.Provisioner
}
