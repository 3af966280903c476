// Package ports holds the target table that the manager writes and every node agent reads,
// its YAML form, and the rule that assigns each file system its local port.
//
// A port is part of every volume's mount options, so it must survive everything: restarts, a
// lost ConfigMap, errors of the API, a restored cluster. Assign is that rule, and Encode and
// Decode are the format, which the original system reads and writes, too.
package ports

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/efs"
)

// Table is what the ConfigMap holds.
type Table struct {
	Targets map[string]Target `yaml:"efs_stunnel_targets"` // by file system id
	// Source is the AWS account and region of the listings that the table was made from, as in
	// 123456789012/us-east-1; "" when unknown.
	Source  string `yaml:"account_and_region,omitempty"`
	Retired []int  `yaml:"retired_ports,omitempty"` // ports of targets that are gone, the longest gone first
	// LastUpdate changes only when something else does; zero when unknown.
	LastUpdate time.Time            `yaml:"last_update,omitempty"`
	Unknown    map[string]yaml.Node `yaml:",inline"` // the keys that other programs or people added, normalized
}

// Target is one file system, with the local port of its tunnel and the addresses of its mount targets.
// The original system expects the fields that are written even when they are empty.
type Target struct {
	Name             string                `yaml:"name"`                   // the Name tag, or the id
	Port             int                   `yaml:"stunnel_port,omitempty"` // 0 only in the pinned table: any
	AddressBySubnet  map[string]netip.Addr `yaml:"mount_target_ip_by_subnet"`
	AddressByZone    map[string]netip.Addr `yaml:"mount_target_ip_by_zone,omitempty"`     // by zone name
	IPv6BySubnet     map[string]netip.Addr `yaml:"mount_target_ipv6_by_subnet,omitempty"` // beside AddressBySubnet, which the original system reads
	IPv6ByZone       map[string]netip.Addr `yaml:"mount_target_ipv6_by_zone,omitempty"`
	DNSName          string                `yaml:"dns_name,omitempty"`          // what the server's certificate must name; "" when unknown
	AvailabilityZone string                `yaml:"availability_zone,omitempty"` // One Zone file systems only
	NotFoundSince    time.Time             `yaml:"not_found_since,omitempty"`   // when a complete listing first lacked it; zero while it is listed
	// PinnedOnly means that the administrator has pinned it and no listing has shown it. It may be
	// another account's: then the API never finds it, whether it exists or not.
	PinnedOnly   bool                   `yaml:"pinned_only,omitempty"`
	IAM          bool                   `yaml:"iam,omitempty"` // the tunnel shows a client certificate
	AccessPoints map[string]AccessPoint `yaml:"access_points,omitempty"`
	Unknown      map[string]yaml.Node   `yaml:",inline"`
}

// HasAddress reports whether the table has any address of the target's servers.
func (t Target) HasAddress() bool {
	return len(t.AddressBySubnet)+len(t.AddressByZone)+len(t.IPv6BySubnet)+len(t.IPv6ByZone) > 0
}

// Zones returns the names of the zones in which the target has a server, sorted.
func (t Target) Zones() []string {
	return sets.List(sets.KeySet(t.AddressByZone).Union(sets.KeySet(t.IPv6ByZone)))
}

// AccessPoint is an access point of the target's file system, with a tunnel of its own.
type AccessPoint struct {
	Port    int                  `yaml:"stunnel_port,omitempty"` // 0 only in the pinned table: any
	IAM     bool                 `yaml:"iam,omitempty"`          // the tunnel shows a client certificate
	Unknown map[string]yaml.Node `yaml:",inline"`
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
	return cmp.Or(strings.Compare(a.FileSystem, b.FileSystem), strings.Compare(a.AccessPoint, b.AccessPoint))
}

// Pinned servers need not be EFS, so the pattern is wider than that of its ids. An id still becomes
// part of Job names of at most 63 bytes, of file names with dots between the parts, and of the
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

// valid returns the keys that may be in a table, sorted, and each once.
func valid(keys []Key) []Key {
	keys = slices.Compact(slices.SortedFunc(slices.Values(keys), compareKeys))
	return slices.DeleteFunc(keys, func(key Key) bool { return key.check() != nil })
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

// Keys returns the file systems and access points of the table, in order.
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

// Owners returns the key that each port in use belongs to.
func (t Table) Owners() map[int]Key {
	owners := map[int]Key{}
	for _, key := range t.Keys() {
		if port, _ := t.Port(key); port != 0 {
			owners[port] = key
		}
	}
	return owners
}

// Clone returns a copy whose maps and lists are its own. Values of unknown keys are shared: they are
// never changed.
func (t Table) Clone() Table {
	targets := make(map[string]Target, len(t.Targets))
	for id, target := range t.Targets {
		target.AddressBySubnet = maps.Clone(target.AddressBySubnet)
		target.AddressByZone = maps.Clone(target.AddressByZone)
		target.IPv6BySubnet = maps.Clone(target.IPv6BySubnet)
		target.IPv6ByZone = maps.Clone(target.IPv6ByZone)
		target.AccessPoints = maps.Clone(target.AccessPoints)
		target.Unknown = maps.Clone(target.Unknown)
		targets[id] = target
	}
	t.Targets = targets
	t.Retired = slices.Clone(t.Retired)
	t.Unknown = maps.Clone(t.Unknown)
	return t
}

// equality takes missing maps and lists for empty ones.
var equality = conversion.EqualitiesOrDie(
	func(a, b netip.Addr) bool { return a == b },
	time.Time.Equal,
)

// equalExceptTime reports whether two tables differ in LastUpdate at most.
func (t Table) equalExceptTime(other Table) bool {
	t.LastUpdate = other.LastUpdate
	return equality.DeepEqual(t, other)
}
