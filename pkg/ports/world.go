package ports

import (
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Input is the world as the caller saw it.
type Input struct {
	// Table is the one in the ConfigMap; nil when that is lost or never was, so that volumes
	// are all that remembers ports. A table that cannot be read is no input at all.
	Table   *Table
	Listing efs.Listing // the latest; the zero Listing before the first and without discovery
	Pinned  Table       // the administrator's
	// Volumes are all of the cluster's. With a nil Table they must come from a live list.
	Volumes []Volume
	// Demand is the access points that somebody asked for.
	Demand Demand
	// Begun are the file systems on which mount Jobs have begun something lately.
	Begun  []string
	Filter efs.Filter
	VPCID  string // where nodes are; "" when unknown: any
	// DNSSuffix and a file system's id, with a dot between, are its name in certificates:
	// efs.us-east-1.amazonaws.com. "" leaves names as they are.
	DNSSuffix string
	Range     Range
	// Gone are ids of an earlier Output.Confirm that the API just now did not find.
	Gone  []string
	State State // of the latest Output that was used; the zero State after a start
	Now   time.Time
}

// Demand is the access points in use. Until all who ask have been heard, Known is false and
// none that has a port loses it.
type Demand struct {
	Known        bool
	AccessPoints []Key
	// IAM are the access points and file systems whose tunnels must show who they are.
	IAM []Key
}

// State is what a caller keeps between two calls. It may be lost at any time: then absences
// are counted from the start and standing news are told once more.
type State struct {
	// Absences counts successive complete listings that lack a target. Partial and empty ones
	// in between say nothing, and are not counted.
	Absences map[string]int
	// CountedAt is ReadAt of the latest listing that was counted, so that none counts twice.
	CountedAt time.Time
	// Standing is everything that is wrong now, also what Output.News told before.
	Standing []News
}

// Output is what should be.
type Output struct {
	Table   Table
	Changed bool // Table must be written
	// Corrections are volumes whose port option must be rewritten, in order of their names.
	Corrections []Correction
	// Confirm are missing file systems of which the caller should ask the API one by one. It
	// then calls Assign again, with those not found as Gone and all else the same, and uses
	// the second Output only.
	Confirm []string
	// Gone are the file systems that provably no longer exist, also those that stay in the
	// table because volumes name them.
	Gone []string
	// Foreign says why the listing seems to be of another account or region than the table, so
	// that nothing was taken from it; "" when it does not.
	Foreign string
	News    []News // not told before
	State   State
}

// Correction says which port a volume's option must name.
type Correction struct {
	Volume string
	On     Key
	From   int // 0 when the volume names none
	To     int
	Reason string
}

// Kind says what sort of news it is.
type Kind string

// Kinds of news. Those marked standing are told once and stay in State.Standing as long as
// they hold.
const (
	Found      Kind = "Found"      // a target entered the table, or is listed again
	Gone       Kind = "Gone"       // a target left the table
	Missing    Kind = "Missing"    // standing: a complete listing lacked it; nothing is removed yet
	Unusable   Kind = "Unusable"   // standing: it is listed, and nodes cannot use it
	OutOfPorts Kind = "OutOfPorts" // standing: it has no port, because none is left
	TableFull  Kind = "TableFull"  // standing: it has no port, because the ConfigMap has no room
	Conflict   Kind = "Conflict"   // standing: somebody wants a port that cannot be had
)

func (k Kind) stands() bool { return k != Found && k != Gone }

// News is something that people should know.
type News struct {
	Kind       Kind
	FileSystem string // "" only where Volume names none
	Volume     string // where the news is about one volume
	Message    string
}
