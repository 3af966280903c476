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
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"gnuthought.com/efs-stunnel/pkg/api/wellknown"
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
	// CACertificates are the authorities of its servers' certificates in PEM; "" for those of the agents' CA file.
	CACertificates    string    `yaml:"ca_certificates,omitempty"`
	ClientCertificate bool      `yaml:"client_certificate,omitempty"` // tunnels show the agents' client certificate for servers of one's own
	NotFoundSince     time.Time `yaml:"not_found_since,omitempty"`    // when a complete listing first lacked it; zero while it is listed
	// PinnedOnly means that the administrator has pinned it and no listing has shown it. It may be
	// another account's: then the API never finds it, whether it exists or not.
	PinnedOnly   bool                   `yaml:"pinned_only,omitempty"`
	IAM          bool                   `yaml:"iam,omitempty"` // the tunnel shows a client certificate
	AccessPoints map[string]AccessPoint `yaml:"access_points,omitempty"`
	// Lanes is how many connections of a client the servers serve as one, which clients of servers without
	// partitions cannot know; 0 for one. Only pins have it.
	Lanes   int                  `yaml:"lanes,omitempty"`
	Unknown map[string]yaml.Node `yaml:",inline"`
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

// Volume is what Assign needs of a PersistentVolume.
type Volume struct {
	Name string
	// On is where the volume is, by its annotations; without a file system it is not ours, but its
	// port still is in use.
	On       Key
	Port     int  // of the last port= option; 0 when there is no valid one
	Loopback bool // its server is the node itself
	Root     bool // a root volume, which is created and removed with its target
	Foreign  bool // another installation made it: its file system may be another account's
}

// VolumeOf reads a PersistentVolume.
func VolumeOf(pv *corev1.PersistentVolume) Volume {
	options := pv.Spec.MountOptions
	if old, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		options = []string{old} // kubelet then uses no others
	}
	nfs := pv.Spec.NFS
	return Volume{
		Name: pv.Name,
		On: Key{
			FileSystem:  pv.Annotations[wellknown.AnnotationFileSystemID],
			AccessPoint: pv.Annotations[wellknown.AnnotationAccessPointID],
		},
		Port:     portOption(options),
		Loopback: nfs != nil && (nfs.Server == wellknown.LoopbackAddress || nfs.Server == "localhost"),
		Root:     pv.Spec.StorageClassName == wellknown.RootStorageClass,
	}
}

// portOption reads the options as mount does: each may hold several, and the last one wins.
func portOption(options []string) int {
	port := 0
	for _, several := range options {
		for option := range strings.SplitSeq(several, ",") {
			if text, ok := strings.CutPrefix(strings.TrimSpace(option), "port="); ok {
				port, _ = strconv.Atoi(text) // 0, or too large, when it is no number
			}
		}
	}
	if port < 1 || port > wellknown.MaxPort {
		return 0
	}
	return port
}

// Range is where new ports come from. Ports that were assigned before may be outside.
type Range struct {
	Base      int
	Count     int
	Reserved  []int // ports that other processes on the nodes have
	NodePorts Span  // of the cluster's services; kube-proxy takes them on every node
}

// Span is the ports from First to Last; the zero Span has none.
type Span struct{ First, Last int }

// ParseSpan parses first-last, the form of kube-apiserver's --service-node-port-range.
func ParseSpan(text string) (Span, error) {
	first, last, _ := strings.Cut(text, "-")
	span, err := spanOf(1, first, last)
	if err != nil {
		return Span{}, fmt.Errorf("want first-last, both from 1 to %d, as %d-%d",
			wellknown.MaxPort, wellknown.MinNodePort, wellknown.MaxNodePort)
	}
	return span, nil
}

func (s Span) String() string { return fmt.Sprintf("%d-%d", s.First, s.Last) }

// Contains reports whether the port is one of the span.
func (s Span) Contains(port int) bool { return 0 < s.First && s.First <= port && port <= s.Last }

// Check returns an error that says what is allowed unless the range can give ports.
func (r Range) Check() error {
	last := r.Base + r.Count - 1
	if r.Base < wellknown.MinPort || r.Count < 1 || last > wellknown.MaxPort || last < r.Base {
		return fmt.Errorf("%d ports from %d on: want 1 or more, all of them from %d to %d",
			r.Count, r.Base, wellknown.MinPort, wellknown.MaxPort)
	}
	for port := r.Base; port <= last; port++ {
		if r.Gives(port) {
			return nil
		}
	}
	return fmt.Errorf("ports %d to %d: want some that are neither %d (NFS), %d (the node agent), "+
		"%s (NodePort services) nor reserved", r.Base, last, wellknown.NFSPort,
		wellknown.AgentHTTPPort, r.NodePorts)
}

// Gives reports whether a new target may get the port.
func (r Range) Gives(port int) bool {
	return r.Base <= port && port < r.Base+r.Count && !r.NodePorts.Contains(port) && r.allows(port)
}

// allows reports whether a target may have the port because a volume has it or it is pinned.
func (r Range) allows(port int) bool {
	return 1 <= port && port <= wellknown.MaxPort && port != wellknown.NFSPort &&
		port != wellknown.AgentHTTPPort && !slices.Contains(r.Reserved, port)
}

// Ephemeral has the ports of a node that its kernel assigns to sockets without a port of their own. The zero Ephemeral
// contains none. A tunnel's port must not be one of them, because another process may have it when the tunnel is to
// listen.
type Ephemeral struct {
	Range    Span
	Reserved []Span // exceptions from Range
}

// ParseEphemeral parses the values of net.ipv4.ip_local_port_range and net.ipv4.ip_local_reserved_ports.
func ParseEphemeral(portRange, reserved string) (Ephemeral, error) {
	fields := strings.Fields(portRange)
	if len(fields) != 2 {
		return Ephemeral{}, fmt.Errorf("ip_local_port_range is %.40q: want two ports", portRange)
	}
	span, err := spanOf(0, fields[0], fields[1])
	if err != nil {
		return Ephemeral{}, fmt.Errorf("ip_local_port_range is %.40q: %w", portRange, err)
	}
	parsed := Ephemeral{Range: span}
	for item := range strings.SplitSeq(strings.TrimSpace(reserved), ",") {
		if item == "" {
			continue // nothing is reserved
		}
		first, last, found := strings.Cut(item, "-")
		if !found {
			last = first
		}
		if span, err = spanOf(0, first, last); err != nil {
			return Ephemeral{}, fmt.Errorf("ip_local_reserved_ports has %.40q: %w", item, err)
		}
		parsed.Reserved = append(parsed.Reserved, span)
	}
	return parsed, nil
}

func spanOf(lowest int, first, last string) (Span, error) {
	from, noFirst := strconv.Atoi(first)
	to, noLast := strconv.Atoi(last)
	if noFirst != nil || noLast != nil || from < lowest || to < from || to > wellknown.MaxPort {
		return Span{}, fmt.Errorf("want ports up to %d, the lower one first", wellknown.MaxPort)
	}
	return Span{First: max(from, 1), Last: to}, nil // port 0 is never assigned
}

// Contains reports whether the kernel may assign the port.
func (e Ephemeral) Contains(port int) bool {
	for _, reserved := range e.Reserved {
		if reserved.Contains(port) {
			return false
		}
	}
	return e.Range.Contains(port)
}
