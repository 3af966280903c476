package ports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/api/status"
	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Input is what the caller observed.
type Input struct {
	// Table is the one in the ConfigMap; nil when that is lost or never was, so that only volumes
	// have the ports. The caller must not call Assign while the table cannot be read.
	Table   *Table
	Listing efs.Listing // the latest; the zero Listing before the first and without discovery
	Pinned  Table       // the administrator's
	// Volumes are all of the cluster's. With a nil Table they must come from a live list.
	Volumes []Volume
	Demand  Demand
	Begun   []string // file systems of recent mount Jobs
	Filter  efs.Filter
	VPCID   string // where nodes are; "" when unknown: any
	// DNSSuffix follows a file system's id and a dot in the server's certificate, as in
	// efs.us-east-1.amazonaws.com; "" leaves DNS names as they are.
	DNSSuffix string
	Range     Range
	Gone      []string // the ids of an earlier Output.Confirm that the API just now did not find
	State     State    // of the latest Output that was used; the zero State after a start
	Now       time.Time
}

// Demand is what claims and volumes require.
type Demand struct {
	// Known is false until all of them are known; until then no access point loses its port, and no
	// tunnel its client certificate.
	Known        bool
	AccessPoints []Key
	IAM          []Key // access points and file systems whose tunnels must show a client certificate
}

// State is what a caller keeps between two calls. It may be lost at any time: then absences
// are counted from the start.
type State struct {
	// Absences counts the successive complete listings that lack a target. Partial and empty ones
	// in between are not counted.
	Absences  map[string]int
	CountedAt time.Time // ReadAt of the latest listing that was counted, so that none counts twice
}

// Output is what the caller should apply.
type Output struct {
	Table       Table
	Changed     bool         // Table must be written
	Corrections []Correction // volumes whose port option must be rewritten, in order of their names
	// Confirm are missing file systems that the caller should get from the API one by one. It then calls
	// Assign again, with those not found as Gone and all else the same, and uses the second Output only.
	Confirm []string
	// Gone are the file systems that provably no longer exist, also those that stay in the
	// table because of their volumes.
	Gone []string
	// Foreign is the reason why the listing seems to be of another account or region than the
	// table, so that nothing was taken from it; "" when it does not.
	Foreign    string
	Events     []Event // what has happened
	Conditions []Event // all that hold now
	State      State
}

// Correction is the port that a volume's mount option must have.
type Correction struct {
	Volume string
	On     Key
	From   int // 0 when the volume has none
	To     int
	Reason string
}

// Event is a change or a condition that the caller should report.
type Event struct {
	Reason     string // of the Kubernetes event, see wellknown
	FileSystem string // "" only where the volume has none
	// AccessPoint is the one that has no port; "" where the event is about none.
	AccessPoint string
	Volume      string // where the event is about one volume
	Message     string
}

// IsCondition reports whether the event holds until an output lacks it.
func (e Event) IsCondition() bool {
	return e.Reason != wellknown.EventFileSystemFound && e.Reason != wellknown.EventFileSystemGone
}

func (p *planner) report(e Event, format string, args ...any) {
	e.Message = fmt.Sprintf(format, args...)
	p.events = append(p.events, e)
}

// reportChanges reports how the new table differs from the old one, and what it lacks.
func (p *planner) reportChanges() {
	for id, target := range p.table.Targets {
		old, existed := p.before.Targets[id]
		found := Event{Reason: wellknown.EventFileSystemFound, FileSystem: id}
		switch {
		case !target.NotFoundSince.IsZero():
			p.report(Event{Reason: wellknown.EventFileSystemMissing, FileSystem: id}, "not listed since %s; its port %d stays", target.NotFoundSince.Format(time.RFC3339), target.Port)
		case !existed:
			p.report(found, "%s has port %d", target.Name, target.Port)
		case !old.NotFoundSince.IsZero():
			p.report(found, "listed again, with port %d", target.Port)
		}
	}
	for id, target := range p.before.Targets {
		if _, exists := p.table.Targets[id]; !exists {
			p.report(Event{Reason: wellknown.EventFileSystemGone, FileSystem: id}, "the file system does not exist any longer; its port %d is retired", target.Port)
		}
	}
}

func (p *planner) reportPins() {
	for _, key := range p.pinnedKeys() {
		want, _ := p.in.Pinned.Port(key)
		got, ok := p.table.Port(key)
		if !ok || want == 0 || got == want {
			continue
		}
		why := "which something else has"
		if owner, ok := p.owners[want]; ok {
			why = "which is that of " + owner.String()
		}
		p.report(Event{Reason: wellknown.EventPortConflict, FileSystem: key.FileSystem}, "%s is pinned to port %d, %s; it has %d and keeps it", key, want, why, got)
	}
}

// reportNodePorts reports the assigned ports that a Service could take, in one event: where the two
// ranges meet, there may be a thousand.
func (p *planner) reportNodePorts() {
	var first Key
	var named []string
	for _, key := range p.table.Keys() {
		if port, _ := p.table.Port(key); p.in.Range.NodePorts.Contains(port) {
			first = cmp.Or(first, key)
			named = append(named, fmt.Sprintf("%s (port %d)", key, port))
		}
	}
	if len(named) == 0 {
		return
	}
	p.report(Event{Reason: wellknown.EventPortConflict, FileSystem: first.FileSystem}, "the NodePort range %s has the ports of %s: a Service with such a nodePort would get their NFS traffic "+
		"on every node. Ports that were given stay: move the cluster's NodePort range off them, and --node-port-range with it, "+
		"or let an admission policy refuse such Services", p.in.Range.NodePorts, status.FirstFew(named))
}

// sortEvents separates what has happened from what holds.
func (p *planner) sortEvents() {
	slices.SortFunc(p.events, func(a, b Event) int {
		return cmp.Or(strings.Compare(a.FileSystem, b.FileSystem), strings.Compare(a.Reason, b.Reason),
			strings.Compare(a.Volume, b.Volume), strings.Compare(a.Message, b.Message))
	})
	for _, e := range slices.Compact(p.events) {
		if e.IsCondition() {
			p.out.Conditions = append(p.out.Conditions, e)
		} else {
			p.out.Events = append(p.out.Events, e)
		}
	}
}
