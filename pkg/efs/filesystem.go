// Package efs has the file systems, mount targets and access points of Amazon EFS, and the listing
// that one poll of its API returns. Package efs/awsefs calls the API.
//
// It decides which file systems can serve a cluster (Usable), and which the administrator allows (Filter).
package efs

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// LifeCycleState is the state of a file system, mount target or access point.
type LifeCycleState string

// The states of the API. Any other value is treated as Error.
const (
	Creating  LifeCycleState = "creating"
	Available LifeCycleState = "available"
	Updating  LifeCycleState = "updating"
	Deleting  LifeCycleState = "deleting"
	Deleted   LifeCycleState = "deleted"
	Error     LifeCycleState = "error"
)

// FileSystem is a file system with its mount targets.
type FileSystem struct {
	ID               string
	Name             string // its Name tag, or ""
	State            LifeCycleState
	AvailabilityZone string // the zone's name for a One Zone file system, else ""
	// ReplicationDestination says that another file system overwrites this one, so that it is
	// read-only here.
	ReplicationDestination bool
	SizeBytes              int64
	Tags                   map[string]string
	// MountTargets are all of them, in any state; nil where they could not be read, see Listing.Failed.
	MountTargets []MountTarget
}

// MountTarget is a file system's address in one subnet, of IPv4, IPv6 or both.
type MountTarget struct {
	SubnetID string
	VPCID    string
	ZoneName string     // us-east-1a; the zone of that name differs between accounts
	Address  netip.Addr // IPv4; invalid when the mount target has none
	IPv6     netip.Addr // invalid when the mount target has none
	State    LifeCycleState
}

// AccessPoint is an entry into a file system with a root directory of its own.
type AccessPoint struct {
	ID           string
	FileSystemID string
	State        LifeCycleState
	Token        string     // by which its creation can be repeated; 1 to 64 characters
	Path         string     // of its root directory
	User         *PosixUser // nil for the client's own
	Tags         map[string]string
}

// PosixUser replaces the user of every client of an access point.
type PosixUser struct{ UID, GID uint32 }

// Listing is the result of one poll of the API.
type Listing struct {
	FileSystems []FileSystem
	// Source is the AWS account that owns the file systems, and their region, as in
	// 123456789012/us-east-1; "" when the API does not say.
	Source string
	// Failed is why the mount targets of a file system could not be read, by its id. FileSystems has
	// the file system without mount targets.
	Failed map[string]error
	// Complete says that every page of every list was read, so that what is not in the listing does
	// not exist.
	Complete bool
	// ReadAt is when the poll began. It identifies the listing.
	ReadAt time.Time
}

// Conclusive reports whether file systems that the listing lacks count as missing. In a partial listing they do
// not, nor in an empty one: the API also returns that for the wrong region or credentials without access.
func (l Listing) Conclusive() bool {
	return l.Complete && len(l.Failed) == 0 && len(l.FileSystems) > 0
}

// Usable reports whether nodes in a VPC can mount a file system and write to it. If not, the reason is a message
// that depends on the cause only. The VPC "" is any.
//
//	file system            mount targets             usable
//	available, updating    one available here        yes
//	any other state        -                         no
//	replication copy       -                         no: it is read-only
//	available              none, creating, deleting  no
//	available              in another VPC            no
//	available              without any address       no
func Usable(fs FileSystem, vpcID string) (reason string, ok bool) {
	if fs.State != Available && fs.State != Updating {
		return fmt.Sprintf("the file system is %s, not available", cmp.Or(string(fs.State), "in no known state")), false
	}
	if fs.ReplicationDestination {
		return "the file system is the destination of a replication, so it is read-only", false
	}
	if len(fs.MountTargets) == 0 {
		return "the file system has no mount target", false
	}
	if slices.ContainsFunc(fs.MountTargets, func(t MountTarget) bool { return t.Serves(vpcID) }) {
		return "", true
	}
	if vpcID != "" && !slices.ContainsFunc(fs.MountTargets, func(t MountTarget) bool { return t.VPCID == vpcID }) {
		return fmt.Sprintf("the file system has no mount target in %s, only in %s", vpcID, fs.MountTargets[0].VPCID), false
	}
	return "the file system has no mount target that is available and has an address", false
}

// Serves reports whether nodes in a VPC can use the mount target now.
func (t MountTarget) Serves(vpcID string) bool {
	return t.State == Available && t.Reachable(vpcID)
}

// Reachable reports whether the mount target has an address for nodes in a VPC, in any state. The VPC "" is any.
func (t MountTarget) Reachable(vpcID string) bool {
	return (t.Address.Is4() || t.IPv6.Is6()) && (vpcID == "" || t.VPCID == vpcID)
}

// Ids become parts of names, labels, file names and the tunnel's configuration. Those of AWS have 8 to 40
// hexadecimal digits; the documentation of the original system also has shorter ones with other letters.
var (
	fileSystemID  = regexp.MustCompile(`^fs-[0-9a-z]{1,40}$`)
	accessPointID = regexp.MustCompile(`^fsap-[0-9a-z]{1,40}$`)
)

// CheckFileSystemID returns an error that says what is allowed, unless the id can be that of a file system.
func CheckFileSystemID(id string) error {
	if !fileSystemID.MatchString(id) {
		return fmt.Errorf("%q is no file system id: want fs- and 1 to 40 lower-case letters or digits", id)
	}
	return nil
}

// CheckAccessPointID does for access points what CheckFileSystemID does for file systems.
func CheckAccessPointID(id string) error {
	if !accessPointID.MatchString(id) {
		return fmt.Errorf("%q is no access point id: want fsap- and 1 to 40 lower-case letters or digits", id)
	}
	return nil
}

// Filter selects the file systems that the cluster may use. The zero Filter selects all.
type Filter struct {
	IDs  []string          // any of these; empty for all
	Tags map[string]string // every one of these
}

// ParseTags parses a comma-separated list of key=value tags, nil for an empty one. A value may contain
// "=", but no comma. Spaces and empty items are ignored.
func ParseTags(list string) (map[string]string, error) {
	var tags map[string]string
	for tag := range strings.SplitSeq(list, ",") {
		if tag = strings.TrimSpace(tag); tag == "" {
			continue
		}
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is no tag: want key=value", tag)
		}
		if _, twice := tags[key]; twice {
			return nil, fmt.Errorf("%q is the second value of tag %q: want one, because all tags must match", value, key)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[key] = value
	}
	return tags, nil
}

// Match reports whether the cluster may use a file system.
func (f Filter) Match(fs FileSystem) bool { return f.Exclusion(fs) == "" }

// Exclusion returns why the cluster may not use a file system, and how to allow it; "" if it may.
func (f Filter) Exclusion(fs FileSystem) string {
	if len(f.IDs) > 0 && !slices.Contains(f.IDs, fs.ID) {
		return "it is not one of --file-system-ids: add it there"
	}
	for _, key := range slices.Sorted(maps.Keys(f.Tags)) {
		if value, ok := fs.Tags[key]; !ok || value != f.Tags[key] {
			return fmt.Sprintf("it lacks the tag %[1]s=%[2]s of --file-system-tags: aws efs tag-resource --resource-id %[3]s --tags Key=%[1]s,Value=%[2]s",
				key, f.Tags[key], fs.ID)
		}
	}
	return ""
}
