package discovery

import (
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"gnuthought.com/efs-stunnel/pkg/controller/targets"
	"gnuthought.com/efs-stunnel/pkg/efs"
	"gnuthought.com/efs-stunnel/pkg/ports"
	"gnuthought.com/efs-stunnel/pkg/volumes"
	"gnuthought.com/efs-stunnel/pkg/wellknown"
)

// state is the world at one sync. What is in it belongs to the caches: nobody changes it.
type state struct {
	table    document
	pinned   document                                 // with the last good table, if there was one
	volumes  []*corev1.PersistentVolume               // live when the table is lost
	claims   map[string]*corev1.PersistentVolumeClaim // of the namespace, those named like root claims
	jobs     map[string][]*batchv1.Job                // used up, by file system
	begun    map[string]bool                          // file systems that mount Jobs of the last hour are about
	findings findings
	demand   ports.Demand              // as it was asked for, not checked yet
	seen     map[string]efs.FileSystem // by the listings so far
	accepted efs.Listing               // the latest that was of the table's account and region
	assigned ports.State
	now      time.Time
}

// plan is what should be. Equal states give equal plans, and a met state one without writes.
type plan struct {
	held  bool        // nothing can be decided; of all that follows there is only the telling
	write bool        // the table is to be stored before anything else is done
	table ports.Table // in force once it is stored

	roots       []rootWork
	corrections []portWork
	ask         []string    // of which file systems the API must say whether they exist
	points      []ports.Key // which access points the API must describe, now and after every listing

	snapshot targets.Snapshot
	assigned ports.State
	seen     map[string]efs.FileSystem
	accepted efs.Listing
	numbers  numbers

	news       []notice    // told once
	complaints []complaint // all that stand now; told when they are new
}

// portWork is a volume as it is, and with the port that it should have.
type portWork struct {
	is, want *corev1.PersistentVolume
	why      ports.Correction
}

// plan decides.
//
//	table        pinned table         first poll   decision
//	unreadable   any                  any          nothing; what was published stays
//	lost         unreadable           any          nothing: it may reserve ports that volumes name
//	lost         readable             not over     nothing: the table would have no addresses
//	lost         readable             over         assign, from the live volumes
//	readable     unreadable, never    any          the table as it is; root volumes are healed
//	readable     readable, or once    any          assign, and correct volumes
func (o Options) plan(s state) plan {
	p := o.planNothing(s)
	switch {
	case s.held():
		p.held = true
	case s.pinned.table == nil:
		p.table = *s.table.table
		o.addPicture(&p, s, nil)
	default:
		o.addAssignment(&p, s)
	}
	return p
}

func (o Options) planNothing(s state) plan {
	return plan{
		assigned: s.assigned, seen: s.seen, accepted: s.accepted, complaints: s.complaints(),
		numbers: numbers{succeeded: s.findings.succeeded, unreadable: s.unreadable()},
	}
}

// planStored is for when the apiserver refuses the table that should be: the stored one stays in
// force, its root volumes are healed, and nothing is removed or corrected.
func (o Options) planStored(s state) plan {
	p := o.planNothing(s)
	p.table = *s.table.table
	o.addPicture(&p, s, nil)
	p.roots = slices.DeleteFunc(p.roots, func(w rootWork) bool { return w.left })
	return p
}

func (s state) held() bool {
	if s.table.err != nil {
		return true
	}
	return s.table.lost() && (s.pinned.table == nil || !s.findings.over)
}

// addAssignment has ports assigned, and asks before a file system counts as gone.
func (o Options) addAssignment(p *plan, s state) {
	in := o.input(s)
	out := ports.Assign(in)
	if out.Foreign != "" {
		p.complaints = append(p.complaints, identityComplaint(out.Foreign))
		s.findings = s.findings.since(s.accepted)
	}
	p.accepted = s.findings.listing
	missing := out.Confirm
	if len(s.findings.unasked(missing)) > 0 {
		p.ask = missing
	}
	if in.Gone = s.findings.gone(missing); len(in.Gone) > 0 {
		out = ports.Assign(in)
	}
	p.table, p.write, p.assigned = out.Table, out.Changed, out.State
	p.news = newsNotices(out.News, s.volumes)
	o.addPicture(p, s, slices.Concat(out.Gone, s.left(out.Table)))
	p.numbers.identityLooksWrong = out.Foreign != "" || s.findings.listsNothing() && len(out.Table.Targets) > 0
	if out.Foreign != "" {
		p.points = nil // this identity cannot know them
	}
	p.corrections = portWorks(out.Corrections, s.volumes, p.roots)
}

// left are gone file systems that only mount Jobs remember. Each had a port when its Jobs began,
// and loses it only when it is gone, or when somebody edits the table. The listing makes sure that
// the table was not lost: it must be the latest and show everything.
func (s state) left(table ports.Table) []string {
	if s.findings.failure != nil || !s.findings.listing.Conclusive() {
		return nil
	}
	gone := maps.Clone(s.begun)
	for _, fs := range s.findings.listing.FileSystems {
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
		Table: s.table.table, Listing: s.findings.listing, Pinned: *s.pinned.table,
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

// isForeign says that another installation made a volume, which has a provisioner of its own, or a
// namespace for its root claims.
func (o Options) isForeign(object *corev1.PersistentVolume) bool {
	if ref := object.Spec.ClaimRef; object.Spec.StorageClassName == wellknown.RootStorageClass && ref != nil {
		return ref.Namespace != o.Namespace
	}
	provisioner := object.Annotations[wellknown.AnnotationProvisionedBy]
	return provisioner != "" && provisioner != o.Provisioner
}

// addPicture adds what follows from the table that is in force.
func (o Options) addPicture(p *plan, s state, gone []string) {
	v := newView(o, s, p.table, gone)
	p.seen = v.seen
	p.snapshot = v.snapshot()
	p.snapshot.Tunnels = v.tunnels(s)
	p.points = o.questions(s)
	p.numbers = v.numbers(s)
	p.numbers.points = countPoints(p.snapshot.Tunnels)
	var strangers []complaint
	p.roots, strangers = v.roots(s)
	p.complaints = append(p.complaints, strangers...)
}

// portWorks leaves out root volumes that are healed as a whole, and volumes whose old
// annotation with mount options says the right port: kubelet reads nothing else then.
func portWorks(corrections []ports.Correction, objects []*corev1.PersistentVolume, roots []rootWork) []portWork {
	byName := map[string]*corev1.PersistentVolume{}
	for _, object := range objects {
		byName[object.Name] = object
	}
	for _, w := range roots {
		if len(w.steps()) > 0 {
			delete(byName, volumes.RootName(w.pair.FileSystemID))
		}
	}
	var works []portWork
	for _, c := range corrections {
		is, ok := byName[c.Volume]
		if !ok {
			continue
		}
		if want := is.DeepCopy(); volumes.SetPort(want, c.To) {
			works = append(works, portWork{is: is, want: want, why: c})
		}
	}
	return works
}
