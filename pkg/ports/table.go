// Package ports holds the target table that the manager writes and every node agent reads,
// its YAML form, and the rule that gives each file system its local port.
//
// A port is part of every volume's mount options, so it must outlive everything: restarts, a
// lost ConfigMap, errors of the API, a restored cluster. Assign is that rule, and Encode and
// Decode are the format, which the original system reads and writes, too.
package ports

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Table is what the ConfigMap holds.
type Table struct {
	Targets map[string]Target // by file system id
	// Source is the AWS account and region of the listings that the table was made from, as in
	// 123456789012/us-east-1; "" when unknown.
	Source string
	// Retired are ports of targets that are gone, the longest gone first.
	Retired []int
	// LastUpdate changes only when something else does; zero when unknown.
	LastUpdate time.Time
	// Unknown are keys that others put beside ours, as JSON values.
	Unknown map[string]any
}

// Target is where one file system's tunnel starts and leads to.
type Target struct {
	Name             string // the Name tag, or the id
	Port             int    // 0 only in the pinned table: any
	AddressBySubnet  map[string]netip.Addr
	AddressByZone    map[string]netip.Addr // by zone name
	DNSName          string                // what the server's certificate must name; "" when unknown
	AvailabilityZone string                // One Zone file systems only
	// NotFoundSince is when a complete listing first lacked it; zero while it is listed.
	NotFoundSince time.Time
	// PinnedOnly says that the administrator has pinned it and no listing has shown it. It may be
	// another account's: that the API does not find it then proves nothing.
	PinnedOnly   bool
	IAM          bool // the tunnel shows a client certificate
	AccessPoints map[string]AccessPoint
	Unknown      map[string]any
}

// AccessPoint is a tunnel of its own into the target's file system.
type AccessPoint struct {
	Port    int  // 0 only in the pinned table: any
	IAM     bool // the tunnel's certificate also says who the node is
	Unknown map[string]any
}

// Key names what a port belongs to: a file system, or an access point of it.
type Key struct {
	FileSystem  string
	AccessPoint string // "" for the file system itself
}

func (k Key) String() string {
	if k.AccessPoint == "" {
		return k.FileSystem
	}
	return k.FileSystem + "/" + k.AccessPoint
}

func compareKeys(a, b Key) int {
	if c := strings.Compare(a.FileSystem, b.FileSystem); c != 0 {
		return c
	}
	return strings.Compare(a.AccessPoint, b.AccessPoint)
}

// Pinned servers need not be of EFS, so their names are freer than its ids. They still become
// parts of Job names of at most 63 bytes, of file names with dots between the parts, and of the
// tunnel's configuration.
var targetID = regexp.MustCompile(`^[a-z]([-0-9a-z]{0,41}[0-9a-z])?$`)

// CheckTargetID returns an error that says what is allowed unless a target may have this id.
func CheckTargetID(id string) error {
	if !targetID.MatchString(id) {
		return fmt.Errorf("%.60q is no target id: want 1 to 43 lower-case letters, digits or dashes, "+
			"a letter first and no dash last", id)
	}
	return nil
}

func (k Key) check() error {
	if err := CheckTargetID(k.FileSystem); err != nil {
		return err
	}
	if k.AccessPoint == "" {
		return nil
	}
	return efs.CheckAccessPointID(k.AccessPoint)
}

// Port returns the port that belongs to a key.
func (t Table) Port(key Key) (port int, ok bool) {
	target, ok := t.Targets[key.FileSystem]
	if !ok || key.AccessPoint == "" {
		return target.Port, ok
	}
	point, ok := target.AccessPoints[key.AccessPoint]
	return point.Port, ok
}

// Keys returns everything that has a port, in order.
func (t Table) Keys() []Key {
	var keys []Key
	for id, target := range t.Targets {
		keys = append(keys, Key{FileSystem: id})
		for point := range target.AccessPoints {
			keys = append(keys, Key{FileSystem: id, AccessPoint: point})
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

// Owners returns what each port in use belongs to.
func (t Table) Owners() map[int]Key {
	owners := map[int]Key{}
	for _, key := range t.Keys() {
		if port, _ := t.Port(key); port != 0 {
			owners[port] = key
		}
	}
	return owners
}

// Clone returns a copy whose maps and lists are its own. Unknown values are shared: nobody
// changes them.
func (t Table) Clone() Table {
	targets := make(map[string]Target, len(t.Targets))
	for id, target := range t.Targets {
		targets[id] = target.clone()
	}
	t.Targets = targets
	t.Retired = slices.Clone(t.Retired)
	t.Unknown = maps.Clone(t.Unknown)
	return t
}

func (t Target) clone() Target {
	t.AddressBySubnet = maps.Clone(t.AddressBySubnet)
	t.AddressByZone = maps.Clone(t.AddressByZone)
	t.AccessPoints = maps.Clone(t.AccessPoints)
	t.Unknown = maps.Clone(t.Unknown)
	return t
}

// equalButTime says whether two tables differ in LastUpdate at most.
func (t Table) equalButTime(other Table) bool {
	return maps.EqualFunc(t.Targets, other.Targets, Target.equal) && t.Source == other.Source &&
		slices.Equal(t.Retired, other.Retired) && equalUnknown(t.Unknown, other.Unknown)
}

func (t Target) equal(other Target) bool {
	return t.Name == other.Name && t.Port == other.Port &&
		maps.Equal(t.AddressBySubnet, other.AddressBySubnet) &&
		maps.Equal(t.AddressByZone, other.AddressByZone) &&
		t.DNSName == other.DNSName && t.AvailabilityZone == other.AvailabilityZone &&
		t.NotFoundSince.Equal(other.NotFoundSince) && t.PinnedOnly == other.PinnedOnly && t.IAM == other.IAM &&
		maps.EqualFunc(t.AccessPoints, other.AccessPoints, AccessPoint.equal) &&
		equalUnknown(t.Unknown, other.Unknown)
}

func (p AccessPoint) equal(other AccessPoint) bool {
	return p.Port == other.Port && p.IAM == other.IAM && equalUnknown(p.Unknown, other.Unknown)
}

func equalUnknown(a, b map[string]any) bool { return maps.EqualFunc(a, b, reflect.DeepEqual) }
